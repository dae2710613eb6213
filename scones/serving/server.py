"""From models to a server that runs, and back to nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import uvicorn

from scones.errors import SconesError
from scones.serving.app import application
from scones.serving.guard import Guard, Keys
from scones.serving.hall import Hall
from scones.serving.lanes import Lane, Owner
from scones.serving.limits import Limits, Served, Serving
from scones.text.cleaning import languages_of
from scones.text.sentences import split_sentences

_TOGETHER = 64
"""Sentences in a batch: what a core does in a fifth of a second."""
_PATIENCE = 60.0
"""Seconds after which a process that does not answer is taken for dead."""


def application_for(
    models: Sequence[Served], limits: Limits, keys: Keys, origins: Sequence[str] = ()
) -> Guard:
    """Start what owns the models and build the application around it."""
    for model in models:  # what the server itself reads at first use is read now
        split_sentences("1. 2.", model.source)
    languages_of("1")
    folders = {model.name: model.folder for model in models}
    fast = Owner(folders).start()
    try:
        exact = Owner(folders, aside=True).start()
    except BaseException:
        fast.stop()
        raise
    lanes = (
        Lane(fast, _TOGETHER, limits.max_waiting, _PATIENCE),
        Lane(exact, 1, limits.max_searches, limits.max_seconds + _PATIENCE),
    )
    return application(Hall(models, *lanes, limits, keys), origins)


def run(models: Sequence[Served], options: Serving, say: Callable[[str], None]) -> None:
    """Serve until somebody ends it."""
    host, port = options.host, options.port
    try:
        listening = socket.create_server((host, port), backlog=2048)
    except (OSError, OverflowError) as problem:
        raise SconesError(
            f"{host}:{port} cannot be listened to ({problem}); choose another --host or --port."
        ) from None
    app = application_for(models, options, Keys(options.keys), options.origins)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        server_header=False,
        limit_concurrency=1_000,
        timeout_graceful_shutdown=int(options.max_seconds) + 60,
    )
    address = listening.getsockname()
    say(f"Serving {', '.join(model.name for model in models)} at http://{host}:{address[1]}/")
    uvicorn.Server(config).run([listening])
