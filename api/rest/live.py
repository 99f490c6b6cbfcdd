"""Interactive requests, from the body to the answer: read, held against limits, taken to a worker, and told on."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

import orjson
from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from api.rest.auth import Caller, authorised, key_of
from api.rest.errors import error_content
from api.rest.hearing import Break, Hearing
from api.rest.holding import taken
from api.rest.keyed import check_query, query_names
from api.rest.known import Known
from api.rest.parts import Parts, parts_of
from api.rest.rated import rate_headers
from api.rest.replay import Turn, take_turn
from api.rest.told import fault_of, interrupted
from jobs.errors import BadInput, NightmillError
from jobs.ports.engine import EngineResult
from jobs.ports.limiting import Hold
from jobs.ports.reading import Asked, Asking, BadRequest, MissingParameter
from jobs.tenancy import Scope as KeyScope

_HEAVY_BYTES = 32 << 10
_HEAVY_FIELDS = frozenset({"tools", "response_format"})
"""A larger body, or one with schemas, is read in a thread, and a longer answer is written there: others wait for the
event loop.
"""
_MOST_INSIDE = 1 << 19
"""Lists and objects of a body. Two million empty ones take 0.4 s, in which no other thread runs. A text of 16 MiB may
have a bracket in every 32 characters.
"""
_KEPT_BYTES = 1 << 20
"""A longer answer is not kept for an idempotency key: these are many vectors as numbers."""
_STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class LiveRoute(APIRoute):
    """As `KeyedRoute`, with what was looked up for the last requests at hand, and without a thread where it is."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        names = query_names(self)

        async def admitted(request: Request) -> Response:
            known: Known = request.app.state.known
            request.state.caller = await known.caller(key_of(request))
            check_query(request, names)
            return await handle(request)

        return admitted


class _Gone(Exception):
    """The client left: nobody hears an answer."""


class _NotKept(Exception):
    """An answer that is too long to be kept; its key is free again."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


async def _keep(turn: Turn, answer: Response) -> None:
    if len(answer.body) > _KEPT_BYTES:
        raise _NotKept(answer)
    await run_in_threadpool(turn.keep, bytes(answer.body))


class Answering:
    """One request of an endpoint. prefix: of its id."""

    def __init__(self, request: Request, endpoint: str, prefix: str) -> None:
        self._request = request
        self._parts: Parts = parts_of(request)
        self._known: Known = request.app.state.known
        self._caller: Caller = authorised(request, KeyScope.INFERENCE)
        self._endpoint = endpoint
        self._prefix = prefix

    async def answer(self, idempotency_key: str | None) -> Response:
        raw = await self._body()
        try:
            if idempotency_key is None:
                return await self._served(raw, self._parts.ids.new(self._prefix))
            async with self._turn(raw, idempotency_key) as turn:
                answer = await self._served(raw, turn.id, keeps=True)
                await _keep(turn, answer)
                return answer
        except _Gone:
            return Response(status_code=499)  # for the log alone
        except _NotKept as done:
            return done.answer

    @asynccontextmanager
    async def _turn(self, raw: bytes, key: str) -> AsyncIterator[Turn]:
        """Whatever goes wrong, the key is free again: what was not answered is asked for anew."""
        parts = self._parts
        digest = hashlib.sha256(f"POST {self._endpoint}\n".encode() + raw).hexdigest()
        stale_s = max(parts.limits.stale_s, parts.limits.generation_s + parts.limits.request_s)
        # A cancelled task's too: whoever takes over a stale key has its id, under which nothing more is charged.
        forgets = (Exception, asyncio.CancelledError)
        async with take_turn(parts, self._caller, key, digest, self._prefix, stale_s=stale_s, forgets=forgets) as turn:
            yield turn

    async def _body(self) -> bytes:
        try:
            async with asyncio.timeout(self._parts.limits.request_s):
                return await self._request.body()
        except TimeoutError:
            raise HTTPException(408, "The body took too long.") from None

    # ---- reading --------------------------------------------------------------------------------

    async def _read(self, raw: bytes, name: str) -> Asked:
        heavy = len(raw) > _HEAVY_BYTES
        body = await run_in_threadpool(_parsed, raw) if heavy else _parsed(raw)
        asked_model = body.get("model") if isinstance(body, dict) else ""
        if not isinstance(body, dict):
            raise BadRequest(reason="The body must be a JSON object", param="body")
        if not isinstance(asked_model, str) or not asked_model:
            raise MissingParameter(reason="`model` is missing", param="model")
        target = await self._known.target(self._caller, asked_model)
        asking = Asking(
            id=name,
            tenant=self._caller.name,
            project=self._caller.key.project,
            creator=self._caller.key.id,
            endpoint=self._endpoint,
            asked_model=asked_model,
            served=target.served,
            price=target.price,
            created=self._parts.clock.now(),
        )
        read = self._parts.reading.read
        heavy = heavy or not _HEAVY_FIELDS.isdisjoint(body)
        return await run_in_threadpool(read, asking, body) if heavy else read(asking, body)

    async def _hold(self, asked: Asked) -> Hold:
        """Raises RateLimited."""
        tokens = asked.request.input_tokens + asked.request.output_tokens
        limiter, key, tenant = self._parts.limiter, self._caller.key, self._caller.tenant
        hold = limiter.quick(key, tenant, tokens)
        if hold is None:
            hold = await taken(limiter.hold, key, tenant, tokens)
        self._request.state.standing = hold.standing
        return hold

    # ---- asking ---------------------------------------------------------------------------------

    async def _served(self, raw: bytes, name: str, *, keeps: bool = False) -> Response:
        asked = await self._read(raw, name)
        if keeps and asked.stream:
            raise BadRequest(
                reason="An answer that is streamed is not kept: leave out `stream`, or the header Idempotency-Key",
                param="stream",
            )
        hold = await self._hold(asked)
        hearing = Hearing(hold, asked.request.input_tokens)
        try:
            try:
                self._parts.front.ask(asked.request, hearing.hear)
            except BaseException:
                hold.release()  # its end may never be heard
                raise
            hearing.watch(self._request.receive, self._parts.limits.generation_s)
            if asked.stream:
                return await self._streamed(asked, hearing)
            return await self._whole(asked, hearing)
        except BaseException:
            self._leave(asked, hearing)
            raise

    def _leave(self, asked: Asked, hearing: Hearing) -> None:
        if hearing.close():
            self._parts.front.leave(asked.request.id)

    async def _whole(self, asked: Asked, hearing: Hearing) -> Response:
        await hearing.end()
        self._check(asked, hearing)
        hearing.close()
        assert hearing.ended is not None
        assert hearing.ended.result is not None
        body = await _written(asked.writer.whole, hearing.ended.result)
        return Response(body, headers=self._rates(), media_type="application/json")

    def _check(self, asked: Asked, hearing: Hearing) -> None:
        """Raises whatever became of the request instead of an answer."""
        if hearing.ended is not None:
            if (fault := fault_of(hearing.ended, asked.request, hearing.output_tokens)) is not None:
                raise fault
        elif hearing.broken is Break.GONE:
            raise _Gone
        elif hearing.broken is Break.LATE:
            raise interrupted(hearing.output_tokens, f"it took longer than {self._parts.limits.generation_s:g} s")

    def _rates(self) -> dict[str, str]:
        return rate_headers(self._request.state.standing)

    # ---- streams --------------------------------------------------------------------------------

    async def _streamed(self, asked: Asked, hearing: Hearing) -> Response:
        """Begun only when there is something to say: before that, an answer can still be an error."""
        pieces = await hearing.pieces()
        self._check(asked, hearing)
        first = asked.writer.begin() + asked.writer.more(pieces)
        events = self._events(first, asked, hearing)
        return _Events(events, self._rates() | _STREAM_HEADERS, lambda: self._leave(asked, hearing))

    async def _events(self, first: bytes, asked: Asked, hearing: Hearing) -> AsyncGenerator[bytes, None]:
        """One write for all that came meanwhile."""
        writer = asked.writer
        try:
            while hearing.ended is None:
                if first:
                    yield first
                first = writer.more(await hearing.pieces())
                self._check(asked, hearing)
            assert hearing.ended.result is not None
            yield first + await _written(writer.end, hearing.ended.result)
        except NightmillError as error:
            yield first + self._told(error, hearing)
        except _Gone:
            return
        finally:
            self._leave(asked, hearing)

    def _told(self, error: NightmillError, hearing: Hearing) -> bytes:
        _, content = error_content(error, self._parts.hidden)
        generated = {"output_tokens": hearing.output_tokens, "characters": hearing.chars}
        return b"data: %b\n\n" % orjson.dumps({"error": {**content["error"], "generated": generated}})


class _Events(StreamingResponse):
    """Server-sent events. Its client's leaving is noticed by whoever makes them, who has the only eye on it.

    over: is called at the end, also where no event was ever asked for.
    """

    def __init__(
        self, events: AsyncGenerator[bytes, None], headers: dict[str, str], over: Callable[[], object]
    ) -> None:
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._events = events
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(self._events) as events:
                async for event in events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        finally:
            self._over()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _written(write: Callable[[EngineResult], bytes], result: EngineResult) -> bytes:
    """Of many vectors, or of many places with their likeliest tokens, for seconds."""
    if len(result.answers or "") > _HEAVY_BYTES:
        return await run_in_threadpool(write, result)
    return write(result)


def _parsed(raw: bytes) -> Any:
    """Raises BadInput."""
    if len(raw) > _MOST_INSIDE and raw.count(b"[") + raw.count(b"{") > _MOST_INSIDE:
        raise BadInput(source="body", reason=f"it has more than {_MOST_INSIDE:,} lists and objects")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadInput(source="body", reason=f"it is not JSON as RFC 8259 has it: {error}") from error
