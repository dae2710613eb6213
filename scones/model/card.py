"""The model card: the README of a model folder, written from its config.json."""

from __future__ import annotations

from typing import Any


def model_card(config: dict[str, Any]) -> str:
    """Write the card: what the model is, what it was trained on, how it scored, how to use it."""
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

The folder is also a Hugging Face folder: `AutoModelForSeq2SeqLM.from_pretrained` opens it without
custom code. {_WARNING[output["layer"] == "scones"]}
"""


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "`" + str(value).replace("|", "\\|") + "`"  # a signature has bars, as tables have


_FACTS = ("steps", "seed", "data_digest", "vocabulary_digest", "commit", "scones_version")

_WARNING = {
    True: "Its logits are log-odds, one sigmoid a token: greedy search is right there as it is, "
    "while a beam search that normalises by softmax is not what the model was trained for.",
    False: "Its logits go through a softmax, as usual.",
}
