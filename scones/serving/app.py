"""The application: which request goes where."""

from __future__ import annotations

import asyncio
import contextlib
import html
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.routing import APIRouter
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.exceptions import HTTPException

from scones.serving import OURS, Refused, schema
from scones.serving.answers import Json
from scones.serving.guard import Guard, answer_of
from scones.serving.hall import ERRORS, Hall, TheHall, allowed, explained
from scones.serving.libretranslate import libre
from scones.serving.limits import Served
from scones.serving.worker import Item, Task
from scones.version import __version__

PAGE = Path(__file__).parent / "page"
api = APIRouter(dependencies=[Depends(allowed)], responses=ERRORS)


def _told(model: Served, **more: Any) -> JSONResponse:
    about = {"model": model.name, "source": model.source, "target": model.target}
    return JSONResponse(about | more)


@api.post("/v1/translate", responses={200: {"model": schema.TranslateAnswer}})
async def translate(ask: schema.Translate, hall: TheHall) -> Response:
    """Translate a text or several, sentence by sentence; every token with its alternatives."""
    model = hall.model(ask.source, ask.target, ask.model)
    texts = [ask.text] if isinstance(ask.text, str) else ask.text
    hall.check(*texts)
    task = Task(
        "translate",
        model.name,
        ask.search,
        ask.beam_size,
        ask.length_penalty,
        share=ask.share if ask.tokens else None,
    )
    language = model.source if ask.split else None
    found = await asyncio.gather(*(hall.translate(task, text, language) for text in texts))
    return _told(model, translations=found)


@api.post("/v1/alternatives", responses={200: {"model": schema.AlternativesAnswer}})
async def alternatives(ask: schema.Alternatives, hall: TheHall) -> Response:
    """Every translation above a probability, or the n best, and what is proved about them."""
    model, limits = hall.model(ask.source, ask.target, ask.model), hall.limits
    if ask.threshold is not None and ask.n_best is not None:
        raise Refused(422, "Say threshold or n_best, not both.")
    hall.check(ask.text, *(ask.prefix or ()))
    task = Task(
        "alternatives",
        model.name,
        n_best=ask.n_best or 1,
        threshold=None if ask.n_best else ask.threshold or 0.1,
        max_states=min(ask.max_states or limits.max_states, limits.max_states),
        max_seconds=min(ask.max_seconds or limits.max_seconds, limits.max_seconds),
        max_memory=int(limits.max_memory * 1e9),
        most=limits.max_alternatives,
    )
    (found,) = await hall.ask(hall.exact, task, [Item(ask.text, _prefix(ask.prefix))])
    return _told(model, **found)


@api.post("/v1/score", responses={200: {"model": schema.SentenceAnswer}})
async def score(ask: schema.Score, hall: TheHall) -> Response:
    """Judge a translation token by token, with the words that the model would have expected."""
    model = hall.model(ask.source, ask.target, ask.model)
    hall.check(ask.text, ask.translation)
    task = Task("score", model.name, share=ask.share)
    (found,) = await hall.ask(hall.fast, task, [Item(ask.text, ask.translation)])
    return _told(model, sentence=found)


@api.post("/v1/continue", responses={200: {"model": schema.SentenceAnswer}})
async def go_on(ask: schema.Continue, hall: TheHall) -> Response:
    """Translate a sentence whose translation begins as given."""
    model = hall.model(ask.source, ask.target, ask.model)
    hall.check(ask.text, *ask.prefix)
    task = Task(
        "continue", model.name, ask.search, ask.beam_size, ask.length_penalty, share=ask.share
    )
    ((found,),) = await hall.ask(hall.fast, task, [Item(ask.text, _prefix(ask.prefix))])
    return _told(model, sentence=found)


def _prefix(prefix: str | list[str] | None) -> str | tuple[str, ...] | None:
    return tuple(prefix) if isinstance(prefix, list) else prefix


@api.get("/v1/models", responses={200: {"model": schema.ModelsAnswer}})
async def models(hall: TheHall) -> Response:
    """The models that are served, and what a request may ask of them."""
    told = ("max_characters", "max_states", "max_seconds", "max_alternatives", "max_beam")
    limits = {name: getattr(hall.limits, name) for name in told}
    facts = ("name", "source", "target", "layer")
    known = [{fact: getattr(one, fact) for fact in facts} for one in hall.models]
    return JSONResponse({"models": [one | {"limits": limits} for one in known]})


@api.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    return Response(generate_latest(request.app.state.registry), media_type="text/plain")


open_to_all = APIRouter()


@open_to_all.get("/health")
async def health() -> Response:
    """Whether the server answers."""
    return JSONResponse({"status": "ok"})


@open_to_all.get("/ready", responses={503: ERRORS[503]})
async def ready(hall: TheHall) -> Response:
    """Whether the models answer."""
    if not (hall.fast.ready and hall.exact.ready):
        raise Refused(503, "The models are being started.")
    return JSONResponse({"status": "ready"})


@open_to_all.get("/", include_in_schema=False)
async def page() -> Response:
    return await file("index.html")


@open_to_all.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    return HTMLResponse(_documentation(request.app.openapi()))


@open_to_all.get("/{name}", include_in_schema=False)
async def file(name: str) -> Response:
    """A file of the page; its name is looked up, never made into a path."""
    files = {path.name: path for path in PAGE.iterdir()}
    if name not in files:
        raise Refused(404, "There is no such page.")
    return FileResponse(files[name], headers={"cache-control": "no-cache"})


def _documentation(described: Json) -> str:
    """The OpenAPI description as a page, which needs no script and nobody else's host."""
    lines = ["<!doctype html>", '<html lang="en"><head><meta charset="utf-8">']
    lines += ["<title>SCONES API</title>", '<link rel="stylesheet" href="/page.css"></head>']
    lines += ["<body><main><h1>SCONES API</h1>"]
    lines += ['<p>The whole of it for programs: <a href="/openapi.json">openapi.json</a>.</p>']
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            lines.append(f"<h2>{method.upper()} {html.escape(path)}</h2>")
            lines.append(f"<p>{html.escape(about.get('description', ''))}</p>")
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            lines += _fields(described, body.get("schema", {}))
    return "\n".join([*lines, "</main></body></html>"])


def _fields(described: Json, body: Json) -> list[str]:
    """What a request has to say; nothing for those without a body."""
    name = body.get("$ref", "").rpartition("/")[2]
    about = described["components"]["schemas"].get(name, {})
    needed = about.get("required", ())
    rows = ["<dl>"]
    for field, facts in about.get("properties", {}).items():
        kinds = [one.get("type", "") for one in facts.get("anyOf", [facts])]
        said = [" or ".join(kinds), "needed" if field in needed else ""]
        said += [facts.get("description", "")]
        if facts.get("default") is not None:
            said.append(f"default {facts['default']}")
        text = html.escape("; ".join(filter(None, said)))
        rows.append(f"<dt><code>{html.escape(field)}</code></dt><dd>{text}</dd>")
    return [*rows, "</dl>"]


async def _answer_to(_: Request, problem: Any) -> Response:
    """One sentence, whatever went wrong."""
    if isinstance(problem, HTTPException):
        refusal = Refused(problem.status_code, str(problem.detail).rstrip(".") + ".")
        return answer_of(refusal, problem.headers)
    if isinstance(problem, RequestValidationError):
        return answer_of(Refused(422, explained(problem.errors(), 1)))
    return answer_of(problem if isinstance(problem, Refused) else Refused(500, OURS))


def application(hall: Hall, origins: Sequence[str] = ()) -> Guard:
    """Put everything together."""

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        lanes = (hall.fast, hall.exact)
        tasks = [asyncio.create_task(lane.run()) for lane in lanes]
        yield
        for task in tasks:
            task.cancel()
        for lane in lanes:
            lane.close()

    registry = CollectorRegistry()
    answered = (Exception, Refused, RequestValidationError, HTTPException)
    app = FastAPI(
        title="SCONES",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=running,
        redirect_slashes=False,
        exception_handlers=dict.fromkeys(answered, _answer_to),
    )
    app.state.hall, app.state.registry = hall, registry
    waiting = Gauge("scones_waiting", "Sentences in the queue.", ("lane",), registry=registry)
    waiting.labels("fast").set_function(lambda: len(hall.fast))
    waiting.labels("exact").set_function(lambda: len(hall.exact))
    for router in (api, libre, open_to_all):  # the last takes any name
        app.include_router(router)
    if origins:
        from fastapi.middleware.cors import CORSMiddleware

        app.add_middleware(CORSMiddleware, allow_origins=list(origins), allow_headers=["*"])
    return Guard(app, hall.limits, registry)
