"""`scones info`: what a model folder holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Show a model's sizes, output layer, languages, origin and scores."""
    from scones.model.folder import read_model_config
    from scones.translator import load

    config = read_model_config(model)
    # Loading it is the only way to say that it is whole.
    parameters = sum(p.numel() for p in load(model, "cpu").model.parameters())
    ours = dict(config["scones"])
    facts = {
        "languages": f"{ours.pop('source_language')} → {ours.pop('target_language')}",
        "parameters": parameters,
        "vocabulary": config["vocab_size"],
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "size": config["d_model"],
        "heads": config["encoder_attention_heads"],
        "feed_forward": config["encoder_ffn_dim"],
        "tied_embeddings": config["tie_word_embeddings"],
        "max_length": config["max_position_embeddings"],
        **ours,
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for name, value in facts.items():
        shown = value
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {_rounded(part)}" for key, part in value.items())
        elif isinstance(value, int) and not isinstance(value, bool):
            shown = f"{value:,}"
        typer.echo(f"{name.replace('_', ' '):18} {shown}")


def _rounded(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
