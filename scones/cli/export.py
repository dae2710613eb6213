"""`scones export` and `scones convert`, a model in another form; `scones shortlist`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from scones.cli.flags import JsonFlag, OverwriteFlag, answer
from scones.errors import SconesError
from scones.options import REQUIRED, argument, option


@dataclass(frozen=True, kw_only=True)
class Export(OverwriteFlag, JsonFlag):
    """What `scones export` takes."""

    model: Path = argument("A model folder, or a pocket model's name.", "MODEL")
    out: Path | None = argument(
        "The folder to write [MODEL-ctranslate2, beside it; of a pocket model, here]",
        "[OUT]",
        default=None,
    )
    to: Literal["ctranslate2", "pocket", "huggingface"] = option(
        "ctranslate2",
        "The form; pocket: a quarter of the size, for scones alone; huggingface: a model folder in "
        "full, also of a pocket model.",
    )
    quantization: Literal["float32", "int8", "float16", "bfloat16"] | None = option(
        None,
        "How CTranslate2 stores the weights [float32]; int8: a quarter of the size, faster, not "
        "quite exact.",
    )
    check: Path | None = option(
        None,
        "Sentences, one per line, to compare the translations of; else random pieces.",
    )
    card: Path | None = option(
        None,
        "A JSON file of what the model card tells (pocket, huggingface): name, licence, data, "
        "tests, signature, limits.",
    )

    @property
    def folder(self) -> Path:
        """Where it is written: beside the model, where nothing else was said."""
        suffix = f"-{self.quantization}" if self.quantization not in (None, "float32") else ""
        return self.out or self.model.with_name(f"{self.model.name}-{self.to}{suffix}")


def export(options: Export) -> None:
    """Write a model for another engine, or small, and compare it with the model itself.

    In: a model folder. Out: a folder that scones translate opens. For CTranslate2, which opens it
    without scones too: how many greedy translations are those of the model; in float32 it is
    written only if rounding explains every difference. As a pocket model: its size, and how far a
    weight is off at most.

        scones export runs/de-en --to ctranslate2 --check test.de
        scones export runs/de-en exports/de-en --quantization int8
        scones translate exports/de-en < input.de > output.en
        scones export runs/de-en pocket/de-en --to pocket
    """
    if options.to == "ctranslate2":
        if options.card:
            raise SconesError("--card goes with --to pocket and huggingface; leave it out.")
        done, text = _for_ctranslate2(options)
    elif options.quantization or options.check:
        raise SconesError(
            f"--quantization and --check go with CTranslate2, not with --to {options.to}."
        )
    else:
        done, text = _as_folder(options)
    answer(options.as_json, {**asdict(done), "folder": str(done.folder)}, text)


def _for_ctranslate2(options: Export) -> tuple[Any, str]:
    from scones.bridges.ctranslate2_export import export as export_model
    from scones.text.reading import read_texts

    quantization = options.quantization or "float32"
    sentences = read_texts(options.check) if options.check else []
    done = export_model(
        options.model, options.folder, quantization, sentences, overwrite=options.overwrite
    )
    found = done.check
    kind = "sentences" if options.check else "random sentences (--check takes real ones)"
    return done, (
        f"{options.folder}: CTranslate2, {quantization}, {done.bytes / 1e6:.1f} MB. Greedy "
        f"translations of {found.sentences:,} {kind}, compared with the model in float32: "
        f"{found.equal:,} are the same, {found.near_ties:,} differ by a near tie, "
        f"{found.sentences - found.equal - found.near_ties:,} otherwise; largest logit difference "
        f"{found.largest_logit_difference:.2g}."
    )


def _as_folder(options: Export) -> tuple[Any, str]:
    from scones.files import read_json
    from scones.model.card import check_metadata
    from scones.model.folder import store_again

    metadata = check_metadata(read_json(options.card), str(options.card)) if options.card else {}
    storage: Literal["int8", "float32"] = "int8" if options.to == "pocket" else "float32"
    done = store_again(
        options.model, options.folder, storage, metadata, overwrite=options.overwrite
    )
    return done, (
        f"{options.folder}: {done.parameters:,} weights in {storage}, {done.bytes / 1e6:.2f} MB on "
        f"disk; largest error of a weight {done.largest_error:.2g}."
    )


@dataclass(frozen=True, kw_only=True)
class Convert(OverwriteFlag, JsonFlag):
    """What `scones convert` takes."""

    model: Path = argument("A Marian folder, or a model's name on huggingface.co.", "MODEL")
    out: Path = argument("The folder to write.", "OUT")
    text: Path = option(
        REQUIRED,
        "Sentences of the source language, one per line, to measure the shift on; the first 300.",
    )


def convert(options: Convert) -> None:
    """Turn a Marian model, such as those of OPUS-MT, into a SCONES model.

    In: its folder (config.json, model.safetensors, source.spm, target.spm, vocab.json) or its name
    on huggingface.co, and text of the kind that it is for. Out: the same folder with one number
    added to the output bias, so that each token has a probability of its own; greedy translations
    stay as they are. It opens here and in transformers, where it can be trained on.

        scones convert opus-mt-de-en scones-de-en --text input.de
        scones convert Helsinki-NLP/opus-mt-de-en scones-de-en --text input.de
        scones translate scones-de-en --search beam < input.de > output.en
    """
    from scones.bridges.marian import convert
    from scones.text.reading import read_texts

    sentences = read_texts(options.text)
    done = convert(options.model, options.out, sentences, overwrite=options.overwrite)
    answer(
        options.as_json,
        {"folder": str(options.out), **asdict(done)},
        f"{options.out}: a SCONES model; the output bias is shifted by {done.shift:+.2f}, minus "
        f"the mean log-sum-exp of the logits (± {done.deviation:.2f}) at {done.tokens:,} tokens.",
    )


@dataclass(frozen=True, kw_only=True)
class MakeShortlist(OverwriteFlag, JsonFlag):
    """What `scones shortlist` takes."""

    store: Path = argument("A store of scones prepare.", "STORE")
    out: Path = argument("The file to write.", "OUT")
    per_token: int = option(100, "Target pieces for each different source piece.", least=1)
    frequent: int = option(500, "Target pieces for every sentence, the most frequent.", least=0)
    pairs: int = option(500_000, "Sentence pairs to learn from, evenly from the store.", least=1)


def shortlist(options: MakeShortlist) -> None:
    """Make a shortlist, with which a model computes few target pieces and translates sooner.

    In: the store that the model was trained on. Out: a file for scones translate --shortlist, and
    how much of the development set's translations it holds. A SCONES model gives the pieces on
    the list the scores that they have without it; a softmax model shares the whole probability
    among them, so that its scores change.

        scones shortlist data/de-en data/de-en.shortlist
        scones shortlist data/de-en short.list --per-token 50 --frequent 300
        scones translate runs/de-en --shortlist data/de-en.shortlist < input.de
    """
    from scones.files import check_file
    from scones.search.shortlist import Shortlist, is_shortlist
    from scones.text.store import TokenStore

    out = options.out
    if out.is_dir():
        raise SconesError(f"{out} is a folder; name a file in it.")
    if out.is_file() and not options.overwrite:
        raise SconesError(f"{out} exists already; choose another name or pass --overwrite.")
    check_file(out, "a shortlist", is_shortlist)
    store = TokenStore.open(options.store)
    made = Shortlist.make(store, options.per_token, options.frequent, options.pairs)
    out.parent.mkdir(parents=True, exist_ok=True)
    made.save(out)
    coverage = None
    if store.dev_texts:
        dev = store.split("dev")
        coverage = made.coverage((dev.sources[i], dev.targets[i]) for i in range(len(dev)))
    facts = {"file": str(out), "bytes": out.stat().st_size, "vocabulary": made.vocabulary}
    facts["coverage"] = coverage and asdict(coverage)
    text = f"{out}: {made.vocabulary:,} pieces, {out.stat().st_size / 1e6:.1f} MB."
    if coverage:
        text += (
            f" A sentence of the development set has {coverage.size:,.0f} pieces on its list, and "
            f"{coverage.tokens:.1%} of its translation's are among them."
        )
    answer(options.as_json, facts, text)
