"""`scones serve`: models behind an HTTP API, and the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from scones.cli.flags import named_paths
from scones.errors import SconesError
from scones.options import argument
from scones.serving.limits import Served, Serving


@dataclass(frozen=True, kw_only=True)
class Serve(Serving):
    """What `scones serve` takes."""

    models: list[Path] | None = argument(
        "Model folders or pocket models' names; NAME=FOLDER gives a name. Without: all pocket "
        "models.",
        "MODEL",
        None,
    )


def serve(options: Serve) -> None:
    """Serve models over HTTP: an API, the same as LibreTranslate's, and a page to try them.

    Out: the address; /docs there describes the API. What waits beyond the limits is sent away, and
    a request may lower those limits for itself. SIGTERM and Ctrl-C let it answer what it has.

        scones serve
        scones serve pocket-de-en pocket-en-de
        scones serve runs/de-en --host 0.0.0.0 --keys keys.txt --max-seconds 2
    """
    try:
        from scones.serving.server import run
    except ImportError as problem:
        raise SconesError(
            f"Serving needs {problem.name}; install it by pip install 'scones[serve]'."
        ) from None
    from scones.model.folder import pocket_models

    given = [str(path) for path in options.models or ()] or pocket_models()
    named = named_paths(given, "models", "FOLDER")
    models = [Served(name, path) for name, path in named.items()]
    run(models, options, typer.echo)
