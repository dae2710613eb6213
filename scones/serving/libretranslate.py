"""LibreTranslate's three routes, so that its clients work unchanged."""

from __future__ import annotations

import asyncio
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRouter
from pydantic import ValidationError

from scones.serving import Refused
from scones.serving.answers import Json
from scones.serving.hall import ERRORS, Hall, TheHall, explained
from scones.serving.schema import Libre, LibreDetect, LibreTranslate
from scones.serving.worker import Item, Task
from scones.text.cleaning import languages_of

Asked = TypeVar("Asked", bound=Libre)

_NAMES = {"de": "German", "en": "English", "fi": "Finnish", "lt": "Lithuanian"}

libre = APIRouter(responses=ERRORS)


def _body(model: type[Libre]) -> Json:
    """Describe a body that may be JSON or a form."""
    described = {"schema": model.model_json_schema()}
    kinds = ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, described)}}


async def _asked(request: Request, hall: Hall, model: type[Asked]) -> Asked:
    try:
        is_json = request.headers.get("content-type", "").startswith("application/json")
        asked = model.model_validate(await request.json() if is_json else {**await request.form()})
    except ValidationError as problem:
        raise Refused(422, explained(problem.errors())) from None
    except ValueError:
        raise Refused(400, "The body is neither JSON nor a form.") from None
    hall.check_key(asked.api_key)
    return asked


def _languages(hall: Hall, text: str) -> list[Json]:
    """The languages that a text may be in, of those that are served, the likeliest first."""
    served = {model.source for model in hall.models}
    return [
        {"confidence": round(100 * probability, 1), "language": language}
        for language, probability in languages_of(text)
        if language in served
    ]


@libre.post("/translate", openapi_extra=_body(LibreTranslate))
async def translate(request: Request, hall: TheHall) -> Response:
    """Translate as LibreTranslate does."""
    asked = await _asked(request, hall, LibreTranslate)
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    hall.check(*texts)
    source, more = asked.source, dict[str, Any]()
    if source == "auto":
        best = _languages(hall, " ".join(texts))[0]
        source, more = best["language"], {"detectedLanguage": best}
    name = hall.model(source, asked.target).name
    if asked.alternatives:
        several = asked.alternatives + 1
        task = Task("translate", name, "beam", several, n_best=several)
        found = await hall.ask(hall.fast, task, [Item(text) for text in texts])
        more["alternatives"] = [[other["text"] for other in others] for _, *others in found]
        answers = [best["text"] for best, *_ in found]
    else:
        task = Task("translate", name)
        whole = await asyncio.gather(*(hall.translate(task, text, source) for text in texts))
        answers = [one["text"] for one in whole]
    more["translatedText"] = answers
    if isinstance(asked.q, str):  # one is no list
        more |= {key: more[key][0] for key in ("translatedText", "alternatives") if key in more}
    return JSONResponse(more)


@libre.post("/detect", openapi_extra=_body(LibreDetect))
async def detect(request: Request, hall: TheHall) -> Response:
    """Tell the language of a text."""
    asked = await _asked(request, hall, LibreDetect)
    hall.check(asked.q)
    return JSONResponse(_languages(hall, asked.q))


@libre.get("/languages")
@libre.post("/languages")
async def languages(hall: TheHall) -> Response:
    """The languages that are served, and into which others."""
    pairs = sorted({(model.source, model.target) for model in hall.models})
    return JSONResponse(
        [
            {"code": code, "name": _NAMES.get(code, code), "targets": [to for _, to in several]}
            for code, several in groupby(pairs, itemgetter(0))
        ]
    )
