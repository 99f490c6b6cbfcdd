"""Routes that need a key: it comes first, before anything of the body is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Coroutine
from typing import Any

import orjson
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.responses import Response
from fastapi.routing import APIRoute

from api.rest.auth import key_of
from api.rest.known import Known
from api.rest.threads import threaded
from jobs.errors import BadInput
from jobs.tenancy import Scope

_ROWS = "rows"
_MOST_VALUES = 50_000
"""In a body, beside its rows. Of each that does not fit pydantic makes an error, in the thread of all requests."""
_MOST_CHARS = 1 << 20
"""Of all texts in a body, beside its rows: they are part of the job's record, which schedulers read again and again."""
_SHORT_BYTES = 16 << 10
"""A body that is parsed faster than a thread is woken for it."""
_LONG = re.compile(rb"\d{19}")


class KeyedRoute(APIRoute):
    """FastAPI reads and parses a body before it asks a dependency: anybody could make it hold what a body may have."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, threaded(endpoint), **options)

    async def admit(self, request: Request) -> None:
        """Note who calls. Raises KeyRefused."""
        known: Known = request.app.state.known
        request.state.caller = await known.caller(key_of(request))

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        names = query_names(self)

        async def admitted(request: Request) -> Response:
            await self.admit(request)
            check_query(request, names)
            if self.body_field is not None and (body := await request.body()) and _is_json(request):
                found = parsed(body) if len(body) <= _SHORT_BYTES else await run_in_threadpool(parsed, body)
                request._json = found  # noqa: SLF001  # where Starlette keeps it
            return await handle(request)

        return admitted


class KeysRoute(KeyedRoute):
    """What outlives a key asks for the caller's own anew: one that was revoked makes no other one, and no webhook. And
    what it changed holds at once, here; in other processes within `api.rest.known.KEPT_S`.
    """

    async def admit(self, request: Request) -> None:
        known: Known = request.app.state.known
        request.state.caller = await known.caller(key_of(request), anew=True)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            finally:
                caller = getattr(request.state, "caller", None)
                if request.method == "POST" and caller is not None and caller.key.may(Scope.KEYS):
                    request.app.state.known.forget_callers()

        return handled


def query_names(route: APIRoute) -> frozenset[str]:
    """Of the parameters that it takes."""
    return frozenset(field.alias for field in get_flat_dependant(route.dependant).query_params)


def check_query(request: Request, names: Container[str]) -> None:
    """Raises BadInput naming one that is not among them."""
    for name in request.query_params:
        if name not in names:
            raise BadInput(source=name, reason="there is no query parameter of this name here", param=name)


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def parsed(body: bytes) -> Any:
    """What a body says. Python's own parser would let pass what nothing behind it can keep: lone surrogates, NaN.

    Raises BadInput.
    """
    try:
        found = orjson.loads(body)
        if _LONG.search(body):  # a whole number that orjson would make a float of
            found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(source="body", reason=f"it is not JSON as RFC 8259 has it: {error}") from error
    beside = [value for name, value in found.items() if name != _ROWS] if isinstance(found, dict) else [found]
    _check_size(beside)
    return found


def _check_size(left: list[Any]) -> None:
    seen, chars = len(left), 0
    while left and seen <= _MOST_VALUES:
        value = left.pop()
        if isinstance(value, dict):
            seen += len(value)
            left += [*value.values(), *value]
        elif isinstance(value, list):
            seen += len(value)
            left += value
        elif isinstance(value, str):
            chars += len(value)
    if seen > _MOST_VALUES:
        raise BadInput(source="body", reason=f"it has more than {_MOST_VALUES:,} values beside its rows")
    if chars > _MOST_CHARS:
        raise BadInput(source="body", reason=f"its texts have more than {_MOST_CHARS:,} characters beside its rows")
