"""A server of tiny models on a port of its own, in this process but for its workers."""

from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from http_clients import listening


@pytest.fixture(scope="session")
def running(tiny_models):
    """A server of both tiny models; its `app`, `hall` and `client`."""
    from scones.serving.guard import Keys
    from scones.serving.limits import Limits, Served
    from scones.serving.server import application_for

    models = [Served(name, tiny_models / name) for name in ("scones", "softmax")]
    limits = Limits(max_characters=400, max_seconds=1.0, max_states=2000)
    app = application_for(models, limits, Keys())
    with listening(app) as client:
        yield SimpleNamespace(app=app, hall=app.app.state.hall, client=client)


@pytest.fixture
def client(running):
    return running.client
