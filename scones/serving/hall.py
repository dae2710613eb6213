"""What all requests share: models, lanes, limits and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Request

from scones.serving import schema
from scones.serving.answers import Json
from scones.serving.guard import Keys, Refused
from scones.serving.lanes import Lane
from scones.serving.limits import Limits, Served
from scones.serving.worker import Item, Refusal, Task

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
        """Refuse what is too long."""
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
            if isinstance(answer, Refusal):
                raise Refused(answer.status, answer.reason)
        return answers

    async def translate(self, task: Task, text: str, split: bool) -> Json:
        """A text from the translations of its sentences, and these."""
        parts = sentences(text) if split else [text]
        found = await self.ask(self.fast, task, [Item(part.strip()) for part in parts])
        whole = [_in_place(part, one[0]["text"]) for part, one in zip(parts, found, strict=True)]
        return {"text": "".join(whole), "sentences": [one[0] for one in found]}


def sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space around it."""
    return [line for line in text.splitlines(keepends=True) if line.strip()]


def _in_place(part: str, translation: str) -> str:
    before, _, after = part.partition(part.strip())
    return before + translation + after


def _hall(request: Request) -> Hall:
    hall: Hall = request.app.state.hall
    return hall


def allowed(request: Request) -> None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    key = key if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    _hall(request).check_key(key)


TheHall = Annotated[Hall, Depends(_hall)]


def explained(problems: Sequence[Any]) -> str:
    """What is wrong with a request, without what stood there."""
    told = [f"{'.'.join(map(str, one['loc'][1:])) or 'body'}: {one['msg']}" for one in problems[:5]]
    return f"{'; '.join(told)}.".encode(errors="replace").decode()
