"""What all requests share: models, lanes, limits and keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Request

from scones.serving import Refused, schema
from scones.serving.answers import Json
from scones.serving.guard import Keys
from scones.serving.lanes import Lane
from scones.serving.limits import Limits, Served
from scones.serving.worker import Item, Task
from scones.text.sentences import split_sentences

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Error, "description": description}
    for status, description in {
        400: "What was asked for makes no sense.",
        401: "The key is missing or wrong.",
        404: "There is no such model.",
        413: "Too large.",
        422: "A field is missing, unknown or out of bounds.",
        429: "Too many wait; Retry-After says when to ask again.",
        503: "The models are not ready.",
    }.items()
}
"""How requests are refused, for the documentation."""


class Hall:
    """Where every request goes."""

    def __init__(
        self, models: Sequence[Served], fast: Lane, exact: Lane, limits: Limits, keys: Keys
    ) -> None:
        self.models, self.fast, self.exact = models, fast, exact
        self.limits, self.keys = limits, keys

    def model(self, source: str, target: str, name: str | None = None) -> Served:
        """The model of that name for a pair, or the first for the pair."""
        for one in self.models:
            if (one.source, one.target) == (source, target) and name in (None, one.name):
                return one
        known = ", ".join(f"{one.name} ({one.source} to {one.target})" for one in self.models)
        raise Refused(404, f"There is no such model for this pair; there are {known}.")

    def check(self, *texts: str) -> None:
        """Refuse what is too long, or no text."""
        if any("\ud800" <= one <= "\udfff" for text in texts for one in text):
            raise Refused(422, "The text holds half a character (a lone surrogate).")
        characters, most = sum(map(len, texts)), self.limits.max_characters
        if characters > most:
            raise Refused(413, f"These are {characters:,} characters; at most {most:,} are taken.")

    def check_key(self, key: str | None) -> None:
        if key not in self.keys:
            raise Refused(401, "The API key is missing or wrong.")

    async def ask(self, lane: Lane, task: Task, items: Sequence[Item]) -> list[Any]:
        """The answers of a lane, all of them or none."""
        answers = await lane.ask(task, items) if items else []
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        return answers

    async def translate(self, task: Task, text: str, language: str | None) -> Json:
        """A text from the translations of its sentences, in a language to split, and these."""
        # A long text may take a while, in which others want to be answered.
        parts = await asyncio.to_thread(_parts, text, language) if language else [text]
        real = [part.strip() for part in parts if part.strip()]
        found = [best for best, *_ in await self.ask(self.fast, task, list(map(Item, real)))]
        translations = iter(found)
        whole = []
        for part in parts:
            if sentence := part.strip():
                whole.append(part.replace(sentence, next(translations)["text"], 1))
            else:
                whole.append(part)
        return {"text": "".join(whole), "sentences": found}


def _parts(text: str, language: str) -> list[str]:
    """The sentences of each line with the white space around them, and lines without any."""
    lines = text.splitlines(keepends=True)
    return [part for line in lines for part in split_sentences(line, language) or [line]]


# What FastAPI calls for a request is a coroutine, or it would wait for a thread each time.


async def _hall(request: Request) -> Hall:
    hall: Hall = request.app.state.hall
    return hall


TheHall = Annotated[Hall, Depends(_hall)]


async def allowed(request: Request, hall: TheHall) -> None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    key = key if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    hall.check_key(key)


# What pydantic says of these helps nobody who writes a request.
_PLAINLY = {
    "json_invalid": "The request is not JSON, or only a part of it",
    "model_attributes_type": "Send an object, with the header content-type: application/json",
}


def explained(problems: Sequence[Any], skipped: int = 0) -> str:
    """What is wrong with a request, without what stood there.

    Of the names that lead to a field the first few are `skipped`.
    """
    told = []
    for one in problems[:5]:
        field = ".".join(map(str, one["loc"][skipped:])) or "body"
        told.append(_PLAINLY.get(one["type"]) or f"{field}: {one['msg']}")
    return f"{'; '.join(told)}.".encode(errors="replace").decode()
