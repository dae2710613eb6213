"""The peer: the same weights in Hugging Face transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scones.search.engine import padded
from scones.search.searcher import SearchOptions, batches_by_length, length_limit
from scones.text import END, PAD

Ids = list[list[int]]


def hugging_face_model(
    folder: Path, device: torch.device, precision: torch.dtype = torch.float32
) -> Any:
    """Open a model folder of ours as the Pegasus class."""
    from transformers import AutoModelForSeq2SeqLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    return AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=precision).to(device)


@dataclass(frozen=True)
class Generate:
    """Translation by `generate`, in batches of like lengths and with our length limits."""

    model: Any
    cache: str | None = None
    """The `cache_implementation`; "static" is compiled on a GPU, anew for every shape."""

    @torch.inference_mode()
    def __call__(self, sources: Ids, options: SearchOptions) -> Ids:
        """Give the ids of each translation, its end of sentence included."""
        results: Ids = [[] for _ in sources]
        lengths = [len(source) + 1 for source in sources]
        longest = self.model.config.max_position_embeddings
        limits = [length_limit(length, longest) for length in lengths]
        more = {} if self.cache is None else {"cache_implementation": self.cache}
        max_tokens = options.max_tokens or max(lengths) * len(lengths) * options.beams
        for batch in batches_by_length(lengths, max_tokens // options.beams):
            source_BS = padded([sources[index] for index in batch], self.model.device)
            written_BT = self.model.generate(
                input_ids=source_BS,
                attention_mask=(source_BS != PAD).long(),
                max_new_tokens=max(limits[index] for index in batch),
                max_length=None,
                num_beams=options.beams,
                length_penalty=0.0 if options.beams > 1 else None,
                **more,
            )
            for index, ids in zip(batch, written_BT[:, 1:].tolist(), strict=True):
                end = ids.index(END) + 1 if END in ids else len(ids)
                results[index] = ids[: min(end, limits[index])]
        return results
