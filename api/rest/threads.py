"""Work that waits, beside the event loop: one thread takes a request's work from its first read to the answer's bytes.

FastAPI itself would wake one to call an endpoint and another to write what it gave, each at the cost of a short read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel


def threaded(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """An endpoint that is no coroutine, called in a thread and answered from there."""
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @functools.wraps(endpoint)
    async def called(**given: Any) -> Response:
        return await run_in_threadpool(lambda: _answer(endpoint(**given)))

    return called


def _answer(made: Response | BaseModel) -> Response:
    if isinstance(made, Response):
        return made
    return Response(made.model_dump_json(by_alias=True), media_type="application/json")
