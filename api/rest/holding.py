"""A request's share of its caller's limits, asked for where an answer may be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi.concurrency import run_in_threadpool

from jobs.ports.limiting import Hold


async def taken(take: Callable[..., Hold], *args: Any) -> Hold:
    """What `take` gives, in a thread. Who is cancelled meanwhile holds nothing: a place that nobody gives back is lost
    to its tenant for as long as this process lives.
    """
    taking = asyncio.ensure_future(run_in_threadpool(take, *args))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        taking.add_done_callback(_give_back)
        raise


def _give_back(taking: asyncio.Future[Hold]) -> None:
    if not taking.cancelled() and taking.exception() is None:
        taking.result().release()
