"""A model's own confident mistakes on sentences with several references, to tell the next one of.

At every true prefix of a reference a mistake is a token that the model takes for right, that no
reference of the source goes on with there, and that none of them holds anywhere. That is a guess:
a translation that nobody wrote down looks the same. The more references a source has the better.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from scones.files import check_file, write_file
from scones.hardware import choose_device
from scones.outputs import output_layer
from scones.search.searcher import batches_by_length
from scones.text.store import Ints, ParallelTokens, TokenStore
from scones.training.data import make_batch, model_for
from scones.training.labels import UNREADABLE, Mistakes, Places, References, joined

_BATCH_TOKENS = 4096


@torch.inference_mode()
def mine(
    store: TokenStore,
    model: Path,
    out: Path,
    probability: float,
    references: int,
    device: str = "auto",
    progress: Callable[[str, int], None] = lambda stage, pairs: None,
) -> dict[str, int]:
    """Write the mistakes of a model on the training pairs of a store to the file `out`.

    Only sources with so many different references count, and tokens of at least this probability.
    """
    check_file(out, "a file of scones mine", _is_ours)
    known = References(store)
    start = model_for(store, model)
    net = start.model.to(choose_device(device)).eval()
    output = output_layer(start.facts.output)
    tokens = store.split("train")
    chosen = np.flatnonzero(known.different >= references)
    found: list[tuple[Ints, ...]] = [(np.zeros(0, np.int64),) * 3]
    done = 0
    for part in batches_by_length((tokens.targets.lengths[chosen] + 1).tolist(), _BATCH_TOKENS):
        pairs = chosen[part]
        batch = make_batch(tokens, pairs, by_sentence=False).to(net.device)
        hidden_ND = batch.hidden(net)
        logits_NV = functional.linear(hidden_ND, net.output_weight, net.output_bias)
        likely = output.log_scores(logits_NV) >= math.log(probability)
        rows, ids = (each.numpy() for each in likely.nonzero().cpu().unbind(1))
        found.append(_unknown(known, tokens, pairs, (rows, ids)))
        done += len(pairs)
        progress("mine", done)
    parts = [np.concatenate(each) for each in zip(*found, strict=True)]
    order = np.lexsort((parts[1], parts[0]))
    names = zip(("pairs", "places", "tokens"), parts, strict=True)
    content = io.BytesIO()
    arrays = {name: each[order].astype(np.uint32) for name, each in names}
    np.savez_compressed(content, allow_pickle=False, store=np.array(store.digest), **arrays)
    write_file(out, content.getvalue())
    return {"pairs": len(chosen), "mistakes": len(order)}


def _is_ours(path: Path) -> bool:
    with contextlib.suppress(*UNREADABLE):
        return bool(Mistakes.read(path))
    return False


def _unknown(
    known: References, tokens: ParallelTokens, pairs: Ints, places: Places
) -> tuple[Ints, ...]:
    """Of some tokens at places of a batch those that no reference holds, as pair, place, token."""
    others, owners = known.others(pairs)
    ids, lengths = tokens.targets.gather(others)
    width = int(max(ids.max(initial=0), places[1].max(initial=0))) + 2
    held = np.repeat(owners, lengths) * width + ids
    rows, guesses = places
    starts = joined(tokens.targets, pairs)[1]
    sentence = np.searchsorted(starts, rows, "right") - 1
    # An end where a reference goes on is told of anyway, and no reference holds it as a token.
    new = ~np.isin(sentence * width + guesses, held) & (guesses > 1)
    return pairs[sentence[new]], (rows - starts[sentence])[new], guesses[new]
