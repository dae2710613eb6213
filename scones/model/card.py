"""The model card: the README of a model folder, written from its config.json."""

from __future__ import annotations

from typing import Any


def model_card(config: dict[str, Any], no_tokenizer: str | None = None) -> str:
    """Write the card: what the model is, what it was trained on, how it scored, how to use it.

    `no_tokenizer` says why the folder holds no Hugging Face tokenizer, where it does not.
    """
    ours = config["scones"]
    source, target = ours["source_language"], ours["target_language"]
    output, scores = ours["output"], ours.get("scores", {})
    settings = ", ".join(f"{name} = {value}" for name, value in output.items() if name != "layer")
    rows = [
        ("languages", f"{source} → {target}"),
        ("output layer", f"{output['layer']} ({settings})"),
        ("layers", f"{config['encoder_layers']} encoder, {config['decoder_layers']} decoder"),
        ("size", f"{config['d_model']}, {config['encoder_attention_heads']} heads"),
        ("vocabulary", f"{config['vocab_size']:,} pieces"),
        *((name.replace("_", " "), str(ours[name])) for name in _FACTS if name in ours),
        *((f"dev {name.replace('_', ' ')}", _shown(value)) for name, value in scores.items()),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"""---
library_name: scones
pipeline_tag: translation
language:
- {source}
- {target}
---

# {source} → {target}, {output["layer"]}

| | |
|---|---|
{table}

```python
import scones

translator = scones.load("path/to/this/folder")
print(translator.translate(["…"])[0][0].text)
```

{_hugging_face(no_tokenizer)}

{_LOGITS[output["layer"] == "scones"]}
"""


def _hugging_face(no_tokenizer: str | None) -> str:
    if no_tokenizer is None:
        return _HUGGING_FACE
    return (
        "The folder is also a Hugging Face folder: `AutoModelForSeq2SeqLM.from_pretrained` opens\n"
        f"it without custom code. {no_tokenizer}"
    )


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "`" + str(value).replace("|", "\\|") + "`"  # a signature has bars, as tables have


_FACTS = ("steps", "seed", "data_digest", "vocabulary_digest", "commit", "scones_version")

_HUGGING_FACE = """The folder is also a Hugging Face folder and needs no custom code there:

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = AutoModelForSeq2SeqLM.from_pretrained("path/to/this/folder")
batch = tokenizer(["…"], return_tensors="pt", padding=True)
longest = min(2 * batch.input_ids.shape[1] + 21, model.generation_config.max_length)
ids = model.generate(**batch, max_length=longest)
print(tokenizer.batch_decode(ids, skip_special_tokens=True)[0])
```

This is greedy search and gives the translations that scones gives. A model that goes round in
circles on a sentence is stopped by `longest`, as scones stops it; in a batch the longest sentence
sets that limit for all."""

_LOGITS = {
    True: "The logits are log-odds, one sigmoid a token: greedy search is right there as it is,\n"
    "while a beam search that normalises by softmax is not what the model was trained for.",
    False: "The logits go through a softmax, as usual.",
}
