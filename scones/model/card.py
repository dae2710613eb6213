"""The model card: the README of a model folder, written from its config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scones.errors import SconesError
from scones.model.config import ModelConfig
from scones.outputs import output_layer

if TYPE_CHECKING:
    from scones.model.folder import ModelFacts


def model_card(
    facts: ModelFacts, sizes: ModelConfig, *, small: bool = False, no_tokenizer: str | None = None
) -> str:
    """Write the card: what the model is, what it was trained on, how it scored, how to use it.

    `small` is a folder stored as int8; `no_tokenizer` says why the folder holds no Hugging Face
    tokenizer, where it does not.
    """
    said, output = facts.to_json(), facts.output
    source, target = facts.source_language, facts.target_language
    settings = ", ".join(f"{name} = {value}" for name, value in output.items() if name != "layer")
    scores = (facts.scores or {}).items()
    rows = [
        ("languages", f"{source} → {target}"),
        ("output layer", f"{output['layer']} ({settings})"),
        ("layers", f"{sizes.encoder_layers} encoder, {sizes.decoder_layers} decoder"),
        ("size", f"{sizes.size}, {sizes.heads} heads"),
        ("vocabulary", f"{sizes.vocabulary:,} pieces"),
        *((name.replace("_", " "), str(said[name])) for name in _ROWS if name in said),
        *((f"dev {name.replace('_', ' ')}", _shown(value)) for name, value in scores),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    name, path = facts.name, facts.name or "path/to/this/folder"
    use = _text("huggingface") if no_tokenizer is None else _NO_TOKENIZER + no_tokenizer
    return f"""---
library_name: scones
pipeline_tag: translation
language:
- {source}
- {target}
---

# {f"{name}: " if name else ""}{source} → {target}, {output["layer"]}

| | |
|---|---|
{table}

{_sections(said)}```python
import scones

translator = scones.load("{path}")
print(translator.translate(["…"])[0][0].text)
```

{_text("int8").format(model=path) if small else use}

{output_layer(output).logits_note}
"""


def check_metadata(metadata: Any, origin: str) -> dict[str, Any]:
    """Check what a card is to tell beyond what training knows; `origin` is where it comes from.

    name: what `scones.load` calls the model. licence: of the model. data: corpora, each with its
    columns {"pairs": …, "licence": …}. tests: test sets, likewise, and signature: of their scores.
    limits: sentences.
    """
    if not isinstance(metadata, dict):
        raise SconesError(f"{origin} must hold an object with {', '.join(_METADATA)}.")
    problems = [f"'{name}' is not known" for name in metadata if name not in _METADATA]
    problems += [
        f"'{name}' must be {wanted}"
        for name, (wanted, fits) in _METADATA.items()
        if name in metadata and not fits(metadata[name])
    ]
    if problems:
        raise SconesError(f"{origin}: {'; '.join(problems)}.")
    return metadata


def _text(form: str) -> str:
    """How a folder of this form is used."""
    return Path(__file__).with_name(f"card.{form}.md").read_text(encoding="utf-8").rstrip()


def _sections(said: Mapping[str, Any]) -> str:
    """Write the sections on data, tests and limits, as far as there are any."""
    # A folder may come from a stranger, so that what does not fit is left out here too.
    told = {name: said[name] for name, (_, fits) in _METADATA.items() if fits(said.get(name))}
    sections = [
        f"## {title}\n\n{_columns(told[name])}\n"
        for name, title in (("data", "Trained on"), ("tests", "Scores"))
        if name in told
    ]
    if "signature" in told:
        sections.append(f"Signature: `{told['signature']}`\n")
    if "limits" in told:
        limits = "\n".join(f"- {limit}" for limit in told["limits"])
        sections.append(f"## Limits\n\n{limits}\n")
    if sections:
        sections.append("## Use\n")
    return "".join(f"{section}\n" for section in sections)


def _columns(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Write a table with a column for everything that any row tells."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [["", *names], ["---"] * (len(names) + 1)]
    lines += [[title, *(_cell(row.get(name, "")) for name in names)] for title, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "`" + str(value).replace("|", "\\|") + "`"  # a signature has bars, as tables have


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(row, dict) for row in value.values())


# What a card can tell beyond what training knows: what it should be, and whether it is that.
_METADATA: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a text", lambda value: isinstance(value, str)),
    "licence": ("a text", lambda value: isinstance(value, str)),
    "data": ("an object of objects", _is_table),
    "tests": ("an object of objects", _is_table),
    "signature": ("a text", lambda value: isinstance(value, str)),
    "limits": ("a list", lambda value: isinstance(value, list)),
}

_ROWS = ["licence", "steps", "seed", "data_digest", "vocabulary_digest", "commit"]
_ROWS += ["scones_version"]

_NO_TOKENIZER = """\
The folder is also a Hugging Face folder: `AutoModelForSeq2SeqLM.from_pretrained` opens
it without custom code. """
