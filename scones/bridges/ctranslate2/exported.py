"""An exported folder: a CTranslate2 model that `scones.load` opens too.

model.bin                the weights, quantised or not
shared_vocabulary.json   the pieces, in the order of their ids
config.json              what CTranslate2 reads, and under "scones" what a model folder says
                         there, with the engine, the quantisation, the check and digests
subwords.model           the SentencePiece model
README.md                how to use it with and without scones
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from scones.bridges.ctranslate2.check import Check, check, random_sources
from scones.bridges.ctranslate2.convert import QUANTIZATIONS, convert, library
from scones.bridges.ctranslate2.searcher import CTranslate2Searcher
from scones.errors import SconesError
from scones.files import new_folder, read_json, write_file, write_json
from scones.model.config import ModelConfig
from scones.model.folder import SUBWORDS, ModelFolder, read_model_config, weights_file
from scones.model.transformer import Transformer
from scones.pocket import find_model
from scones.recipes import from_section
from scones.text.subwords import Subwords

ENGINE = "ctranslate2"
_FILES = ("model.bin", "shared_vocabulary.json", SUBWORDS)


@dataclass(frozen=True)
class Exported:
    """What was written, and how it compares with the model it came from."""

    folder: Path
    quantization: str
    bytes: int
    check: Check


def export(
    source: Path,
    target: Path,
    quantization: str = "float32",
    sentences: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> Exported:
    """Write a model folder as a CTranslate2 model, whole or not at all.

    Its greedy translations of `sentences` (without any: of random pieces) are compared with our
    own; in float32 a difference that rounding does not explain is an error.
    """
    library()
    if quantization not in QUANTIZATIONS:
        known = ", ".join(QUANTIZATIONS)
        raise SconesError(f"The quantisation '{quantization}' is not known; there are {known}.")
    source, target = find_model(source), Path(target)
    if overwrite and target.exists() and not is_export(target):
        raise SconesError(f"{target} is not an export, so it is not overwritten; choose another.")
    if is_export(source):
        raise SconesError(f"{source} is an export itself; export the model folder it came from.")
    with new_folder(target, overwrite=overwrite) as place:
        folder = ModelFolder.load(source)
        convert(folder, place, quantization)
        result = _check(folder, CTranslate2Searcher(place, folder), sentences)
        if quantization == "float32" and not result.passed:
            raise SconesError(
                f"CTranslate2 does not give the output of {source}: "
                f"{result.sentences - result.equal} of {result.sentences} sentences differ, by up "
                f"to {result.largest_gap:.2g} in a logit; nothing was written, use PyTorch."
            )
        write_file(place / SUBWORDS, folder.subwords)
        ours = folder.config_json()["scones"] | {
            "engine": ENGINE,
            "engine_version": library().__version__,
            "quantization": quantization,
            "model": asdict(folder.model.config),
            "weights_digest": _digest(weights_file(source)),
            "check": {"text": "given" if sentences else "random pieces", **asdict(result)},
            "digests": {name: _digest(place / name) for name in _FILES},
        }
        write_json(place / "config.json", read_json(place / "config.json") | {"scones": ours})
        write_file(place / "README.md", _card(ours))
        size = sum(path.stat().st_size for path in place.iterdir())
    return Exported(target, quantization, size, result)


def is_export(folder: Path) -> bool:
    """Say whether a folder is an export rather than a model folder."""
    try:
        return "engine" in read_model_config(folder)["scones"]
    except SconesError:
        return False


def open_export(folder: Path) -> tuple[ModelFolder, CTranslate2Searcher]:
    """Open an export: what a model folder tells, and a searcher in place of the weights.

    The model of that folder is a shape without weights (PyTorch's device "meta").
    """
    folder = Path(folder)
    place = folder / "config.json"
    ours = dict(read_model_config(folder)["scones"])
    del ours["format"]
    try:
        if ours["engine"] != ENGINE:
            raise SconesError(f"{place} names the engine '{ours['engine']}', which is not known.")
        sizes, output = ours["model"], dict(ours.pop("output"))
        languages = ours.pop("source_language"), ours.pop("target_language")
        config = from_section(ModelConfig, sizes, f"{place} is damaged")
        digests = {name: ours["digests"][name] for name in _FILES}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SconesError(f"{place} is damaged; export the model again.") from None
    for name, digest in digests.items():
        if _digest(folder / name) != digest:
            raise SconesError(f"{folder / name} is damaged; export the model again.")
    with torch.device("meta"):
        shape = Transformer(config).eval()
    subwords = (folder / SUBWORDS).read_bytes()
    told = ModelFolder(shape, subwords, output, *languages, facts=ours)
    return told, CTranslate2Searcher(folder, told)


def _check(folder: ModelFolder, searcher: CTranslate2Searcher, sentences: Sequence[str]) -> Check:
    config = folder.model.config
    if not sentences:
        return check(folder, searcher, random_sources(config))
    encoded = Subwords(folder.subwords).encode(sentences)
    sources = [ids for ids in encoded if 0 < len(ids) < config.max_length]
    if not sources:
        raise SconesError("There is no sentence to check with: all are empty or too long.")
    return check(folder, searcher, sources)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise SconesError(f"{path} does not exist; the folder is incomplete.") from None


def _card(ours: dict[str, Any]) -> str:
    source, target = ours["source_language"], ours["target_language"]
    layer, checked = ours["output"]["layer"], ours["check"]
    return f"""# {source} → {target}, {layer}, for CTranslate2 ({ours["quantization"]})

With scones:

```python
import scones

translator = scones.load("path/to/this/folder")
print(translator.translate(["…"])[0][0].text)
```

Without:

```python
import ctranslate2, sentencepiece

subwords = sentencepiece.SentencePieceProcessor(model_file="path/to/this/folder/subwords.model")
translator = ctranslate2.Translator("path/to/this/folder")
(found,) = translator.translate_batch([subwords.encode("…", out_type=str)], beam_size=1)
print(subwords.decode(found.hypotheses[0]))
```

{_SEARCH[layer == "softmax"]}

Checked when it was written: {checked["equal"]} of {checked["sentences"]} greedy translations
({checked["text"]}) are those of the model it came from, whose weights have the SHA-256
{ours["weights_digest"]}.
"""


_SEARCH = {
    True: "Its logits go through a softmax, as usual: other beam sizes are right too.",
    False: "Keep `beam_size=1`: CTranslate2's beam search applies a softmax, for which this model "
    "was not trained.",
}
