"""What a request may take: bytes of headers and body, time, patience; and its id. Below FastAPI, so that all obey."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable
from dataclasses import dataclass

import structlog
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.rest.errors import OURS, RETRY_AFTER_S, body_of
from api.rest.parts import Limits

log = structlog.get_logger()

UPLOADS = "/v1/files"
STREAMS = re.compile(
    r"/v1/(files(/[^/]+/content)?|jobs/[^/]+/(events|lines|results/[^/]+)|(chat/)?completions|embeddings)"
)
"""Whose time is bounded by their client's patience, not by the clock: the longest of them take hours. What a model
answers has a bound of its own, see `api.rest.live`.
"""
_ids = random.Random()  # nobody is kept out by them, and the system's own are slow
_KEY = re.compile(r"nm_\w{16,}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class _Cut(Exception):
    """The client took too long or sent too much."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(slots=True)
class _Exchange:
    """One request: how much of it came, and whether its answer has begun."""

    limits: Limits
    most_bytes: int
    receive: Receive
    send: Send
    request_id: str
    seen: int = 0
    status: int = 0
    whole: bool = False
    closed: bool = False
    cut: _Cut | None = None

    async def take(self) -> Message:
        if self.whole:  # what comes now is the client's leaving, which may be hours away
            return await self.receive()
        try:
            async with asyncio.timeout(self.limits.idle_s):
                message = await self.receive()
        except TimeoutError:
            raise self._cut(_Cut(408, f"Nothing of the body came for {self.limits.idle_s:g} s.", "timeout")) from None
        self.whole = not message.get("more_body", False)
        self.seen += len(message.get("body", b""))
        if self.seen > self.most_bytes:
            raise self._cut(_too_large(self.most_bytes))
        return message

    def _cut(self, cut: _Cut) -> _Cut:
        """FastAPI makes an answer of its own of whatever is raised while it reads a body: that one is not given."""
        self.cut = cut
        return cut

    async def give(self, message: Message) -> None:
        if self.cut is not None:
            raise self.cut
        if self.closed:  # it was refused for its time, and nobody hears what it says now
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.request_id.encode())]
        try:
            async with asyncio.timeout(self.limits.idle_s):
                await self.send(message)
        except TimeoutError:
            raise _Cut(408, "The client took nothing.", "timeout") from None


def _too_large(most_bytes: int) -> _Cut:
    return _Cut(413, f"The body is larger than the {most_bytes:,} bytes that this service takes.", "too_large")


class LimitsMiddleware:
    """Refuses what is too much with OpenAI's body; every answer has `x-request-id`."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else f"req_{_ids.getrandbits(96):024x}"
        upload = scope["path"] == UPLOADS
        most = self._limits.upload_bytes if upload else self._limits.body_bytes
        exchange = _Exchange(self._limits, most, receive, send, request_id)
        began = time.monotonic()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=request_id)
        try:
            await self._run(scope, headers, exchange)
        finally:
            caller = scope.get("state", {}).get("caller")
            log.info(
                "request",
                method=scope["method"],
                path=_shown(scope["path"]),
                status=exchange.status,
                seconds=round(time.monotonic() - began, 4),
                tenant=caller.name if caller else None,
                key=caller.key.id if caller else None,
            )

    async def _run(self, scope: Scope, headers: Headers, exchange: _Exchange) -> None:
        scope.setdefault("state", {})
        try:
            self._check_head(scope, headers, exchange)
            timeout = None if STREAMS.fullmatch(scope["path"]) else self._limits.request_s
            await _in_time(self._app(scope, exchange.take, exchange.give), timeout)
        except _Cut as cut:
            await self._refuse(scope, exchange, cut)
        except ClientDisconnect:  # in the middle of its body: nobody hears an answer
            exchange.closed = True
        except Exception as error:  # the HTTP edge: whatever broke is in the log, and not in the answer
            log.error("request_broke", exc_info=error, silent=True)
            await self._refuse(scope, exchange, _Cut(500, OURS, "broken"))

    def _check_head(self, scope: Scope, headers: Headers, exchange: _Exchange) -> None:
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size + len(scope.get("raw_path", b"")) + len(scope["query_string"]) > self._limits.header_bytes:
            raise _Cut(431, f"Address and headers are longer than {self._limits.header_bytes:,} bytes.", "too_large")
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length) > exchange.most_bytes:
            raise _too_large(exchange.most_bytes)

    async def _refuse(self, scope: Scope, exchange: _Exchange, cut: _Cut) -> None:
        """Nothing to say once the answer has begun: the connection ends."""
        if exchange.status:
            exchange.closed = True
            return
        exchange.cut = None
        headers = {"connection": "close"}
        if cut.status == 503:
            headers["retry-after"] = str(RETRY_AFTER_S)
        kind = "server_error" if cut.status >= 500 else "invalid_request_error"
        response = JSONResponse(body_of(str(cut), kind=kind, code=cut.code), cut.status, headers=headers)
        await response(scope, exchange.receive, exchange.give)
        exchange.closed = True


async def _in_time(work: Awaitable[None], timeout_s: float | None) -> None:
    """Raises _Cut after the time, if there is one. A thread that works on cannot be stopped; its answer is dropped."""
    if timeout_s is None:
        await work
        return
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if not done:
            raise _Cut(503, "The service did not answer in time. Try again.", "unavailable")
        task.result()
    finally:
        task.cancel()


def _shown(path: str) -> str:
    """What a log may hold of it: no key, if somebody writes one there."""
    path = _KEY.sub("nm_…", path)
    return path if len(path) <= 200 else path[:199] + "…"
