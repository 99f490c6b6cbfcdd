"""Idempotency-Key on every POST: the same request again gets the first one's answer, another one is refused.

The id of what a request makes is chosen before it makes anything, and remembered with the key: a client that repeats
its request after a crash ends with one resource, whatever of the first attempt had become durable.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel

from api.rest.auth import Caller, Credentials, authorised
from api.rest.errors import Answered
from api.rest.parts import Parts, parts_of
from jobs.errors import Conflict, Refused, Unavailable
from jobs.ports.filing import Replay
from jobs.retry import Backoff
from jobs.tenancy import Scope

_LOOKS = Backoff(first_s=0.05, factor=1.5, max_s=2.0, attempts=1 << 30)
"""Each look is a transaction, and as many may wait for one answer as a client likes."""
_NOTHING_MADE = (Refused, Conflict, RequestValidationError)
"""After any other fault something may have been made."""
_ASKING = ("x-nightmill-order",)
"""Headers that say what is asked for, as the body does."""
KEY = Header(
    alias="Idempotency-Key",
    max_length=255,
    min_length=1,
    description="Any text of the client's, new for each thing it wants. Both again get the same answer.",
)
IdempotencyKey = Annotated[str | None, KEY]


class RequestDiffers(Conflict):
    """This idempotency key was used for another request. Take a new key, or send the same request again."""

    code = "idempotency_key_in_use"


class StillUnderWay(Conflict):
    """The first request with this idempotency key is not answered yet. Ask again."""

    code = "request_in_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """This request may act, and makes the thing of this id. key: None where the client gave none."""

    parts: Parts
    caller: Caller
    key: str | None
    id: str

    def answer(self, made: BaseModel, status: int = 200) -> Response:
        """The answer, remembered before it is given."""
        body = made.model_dump_json(by_alias=True).encode()
        self.keep(body, status)
        return Response(body, status, media_type="application/json")

    def keep(self, body: bytes, status: int = 200) -> None:
        """Remember the answer."""
        if self.key is not None:
            self.parts.store.answered(self.caller.name, self.key, status, body)


class Turns:
    """A dependency of a POST whose key may be used for `scope`, and which makes something whose id begins so."""

    def __init__(self, prefix: str, scope: Scope) -> None:
        self._prefix = prefix
        self._scope = scope

    async def __call__(
        self,
        request: Request,
        given: Credentials = None,  # noqa: ARG002 - for the document
        idempotency_key: IdempotencyKey = None,
    ) -> AsyncIterator[Turn]:
        caller = authorised(request, self._scope)
        body = await request.body()
        asked = [request.url.path, *(f"{name}: {request.headers[name]}" for name in _ASKING if name in request.headers)]
        digest = _digest(request.method, "\n".join(asked), body)
        async with take_turn(parts_of(request), caller, idempotency_key, digest, self._prefix) as one:
            yield one


@asynccontextmanager
async def take_turn(
    parts: Parts,
    caller: Caller,
    key: str | None,
    digest: str,
    prefix: str,
    *,
    stale_s: float | None = None,
    forgets: tuple[type[BaseException], ...] = _NOTHING_MADE,
) -> AsyncIterator[Turn]:
    """The request that may act gets its turn; others wait for its answer. Raises Answered, Conflict.

    stale_s: see `Limits`. forgets: after these the key is free again. After any other failure the same request acts
    at once; one that was cancelled holds its key until it is stale, since its thread may work on.
    """
    new_id = parts.ids.new(prefix)
    if key is None:
        yield Turn(parts=parts, caller=caller, key=None, id=new_id)
        return
    replay = await _begin(parts, caller.name, key, digest, new_id, stale_s or parts.limits.stale_s)
    try:
        yield Turn(parts=parts, caller=caller, key=key, id=replay.resource)
    except forgets:
        await run_in_threadpool(parts.store.forget, caller.name, key, replay.claim)
        raise
    except Exception:
        with suppress(Unavailable):  # what it failed of is what its client hears
            await run_in_threadpool(parts.store.give_up, caller.name, key, replay.claim)
        raise


async def _begin(parts: Parts, tenant: str, key: str, digest: str, new_id: str, stale_s: float) -> Replay:
    end = parts.clock.monotonic() + parts.limits.wait_s
    look = 0
    while True:
        replay = await run_in_threadpool(parts.store.begin, tenant, key, digest, new_id, stale_s=stale_s)
        if replay.digest != digest:
            raise RequestDiffers
        if replay.answer is not None:
            raise Answered(*replay.answer)
        if replay.mine:
            return replay
        if parts.clock.monotonic() > end:
            raise StillUnderWay
        look += 1
        await asyncio.sleep(_LOOKS.wait_s(look) or 0.0)


def _digest(method: str, path: str, body: bytes) -> str:
    return hashlib.sha256(f"{method} {path}\n".encode() + body).hexdigest()


def digest_of_upload(path: str, *said: str) -> str:
    """said: what stands for a body that is not kept: its fields, and its file's own digest."""
    return _digest("POST", path, "\n".join(said).encode())
