"""The door: what a request has to be before anybody reads it, and what every answer says."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from scones.errors import SconesError
from scones.serving import Refused, tell_of_error
from scones.serving.limits import Limits

_DEPTH = 16
"""Brackets within brackets in JSON."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_ENCODED = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]


class Keys:
    """The keys of a file, one a line; without a file everybody may ask."""

    def __init__(self, path: Path | None = None) -> None:
        self._digests: list[bytes] | None = None
        if path is not None:
            try:
                lines = path.read_text(encoding="utf-8").split()
            except (OSError, UnicodeDecodeError) as problem:
                raise SconesError(f"The keys in {path} cannot be read: {problem}.") from None
            if not lines:
                raise SconesError(f"{path} holds no key; write one a line, or leave it out.")
            self._digests = list(map(_digest, lines))

    def __contains__(self, key: str | None) -> bool:
        if self._digests is None:
            return True
        # All are compared, each in the same time whatever it is.
        given = _digest(key or "")
        return sum(hmac.compare_digest(given, digest) for digest in self._digests) > 0


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()


class Guard:
    """ASGI middleware around the whole application, `app`, which also counts for Prometheus."""

    def __init__(self, app: Any, limits: Limits, registry: CollectorRegistry) -> None:
        self.app, self._limits = app, limits
        names = ("path", "status")
        self._answers = Counter("scones_requests", "Answers.", names, registry=registry)
        self._times = Histogram("scones_seconds", "Time to answer.", names[:1], registry=registry)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 499  # where nobody waited for the answer

        async def answer(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message.get("headers", ())}
                added = [header for header in _ENCODED if header[0] not in own]
                message = message | {"headers": [*message.get("headers", ()), *added]}
            await send(message)

        try:
            async with asyncio.timeout(self._limits.read_seconds):
                body = await _read(receive, self._limits.max_bytes)
            if not _is_form(scope) and _too_deep(body):
                raise Refused(422, f"The JSON is nested more than {_DEPTH} deep.")
            await self._while_there(scope, body, receive, answer)
        except TimeoutError:
            late = Refused(408, "The request did not arrive in time.")
            await answer_of(late)(scope, receive, answer)
        except Refused as refusal:
            await answer_of(refusal)(scope, receive, answer)
        except ClientDisconnect:
            pass
        except Exception:  # it was answered: the one sentence of a 500
            tell_of_error()
        path = getattr(scope.get("route"), "path", "other")
        self._answers.labels(path, str(status)).inc()
        self._times.labels(path).observe(time.perf_counter() - began)

    async def _while_there(self, scope: Any, body: bytes, receive: Any, send: Any) -> None:
        """Answer, and give up when the client goes away."""
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.ensure_future(receive())  # all that is left to come

        async def replay() -> Any:
            return messages.pop() if messages else await asyncio.shield(gone)

        answering = asyncio.ensure_future(self.app(scope, replay, send))
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            answering.cancel()  # if it is not done
            with contextlib.suppress(asyncio.CancelledError):
                await answering
        finally:
            answering.cancel()
            gone.cancel()


async def _read(receive: Any, most: int) -> bytes:
    """A request's body. Of one that is too large the rest is read too, for politeness, and lost."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if len(body) <= most:
            body += message.get("body", b"")
        more = message.get("more_body", False)
    if len(body) > most:
        raise Refused(413, f"The request is larger than {most:,} bytes; send less at a time.")
    return body


def _is_form(scope: Any) -> bool:
    return any(name == b"content-type" and b"form" in kind for name, kind in scope["headers"])


def _too_deep(body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= _DEPTH:
        return False
    marks = re.findall(rb"[\[\]{}]", _STRING.sub(b"", body))
    depths = accumulate(1 if mark in b"[{" else -1 for mark in marks)
    return max(depths, default=0) > _DEPTH


def answer_of(refusal: Refused, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The one sentence as an answer."""
    if refusal.status == 429:
        headers = {"retry-after": "1"}
    return JSONResponse({"error": refusal.sentence}, refusal.status, headers)
