"""Ids on log events: whatever is logged inside `about` carries those of its job and task, in any module below."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

from structlog.contextvars import bind_contextvars, bound_contextvars, get_contextvars

from jobs.model import Job, Task


def about(job: Job, task: Task | None = None) -> AbstractContextManager[None]:
    """Of a job, and of one of its tasks. They are cleared at the end, or are again what they were before."""
    ids = {"job": job.id, "tenant": job.tenant}
    return bound_contextvars(**ids) if task is None else bound_contextvars(**ids, task=task.id)


def inherited() -> Callable[[], None]:
    """What a thread does first, in order to log with the ids of whoever makes it: threads begin without any."""
    ids = get_contextvars()
    return lambda: _bind(ids)


def _bind(ids: dict[str, Any]) -> None:
    bind_contextvars(**ids)


def named_thread(name: str, work: Callable[[], object]) -> threading.Thread:
    """A daemon, not yet started."""
    begin = inherited()

    def run() -> None:
        begin()
        work()

    return threading.Thread(target=run, name=name, daemon=True)


def named_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool of threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=inherited())
