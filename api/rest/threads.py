"""Work that waits, beside the event loop: one thread takes a request's work from its first read to the answer's bytes.

FastAPI itself would wake one to call an endpoint and another to write what it gave, each at the cost of a short read;
and its own threads cost twice as much a wake as an executor's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread as executors
import contextvars
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi.responses import Response
from pydantic import BaseModel

T = TypeVar("T")
_MOST = 40
"""At a time, as FastAPI has it."""
_threads = ThreadPoolExecutor(_MOST, thread_name_prefix="request")


async def in_thread(work: Callable[[], T]) -> T:
    """Its result. Whoever is cancelled waits no longer, but the work goes on to its end."""
    return await asyncio.get_running_loop().run_in_executor(_threads, contextvars.copy_context().run, work)


def abandon() -> None:
    """The process may end now: Python would wait for the executor's threads, however long their work takes."""
    for thread in list(_threads._threads):  # noqa: SLF001 - there is no public way
        if thread.daemon:  # as their maker, the server's thread; others are waited for in any case
            executors._threads_queues.pop(thread, None)  # type: ignore[attr-defined]  # noqa: SLF001 - as above


def threaded(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """An endpoint that is no coroutine, called in a thread and answered from there."""
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @functools.wraps(endpoint)
    async def called(**given: Any) -> Response:
        return await in_thread(lambda: _answer(endpoint(**given)))

    return called


def _answer(made: Response | BaseModel) -> Response:
    if isinstance(made, Response):
        return made
    return Response(made.model_dump_json(by_alias=True), media_type="application/json")
