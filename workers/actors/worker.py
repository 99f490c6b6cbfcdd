"""The worker actor: one engine on its accelerators."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

import ray
import structlog

from infra.bootstrap import open_home
from infra.settings.wire import from_json
from infra.sql import codec
from jobs.model import Job, Task
from jobs.pools import Pool
from workers.reports import Phase, Report, encode
from workers.wiring import worker_of_pool

log = structlog.get_logger()


class WorkerActor:
    """One engine on its accelerators; see `workers.pool_worker`."""

    def __init__(self, settings: bytes, pool: bytes, name: str) -> None:
        self._home = home = open_home(from_json(settings))
        self._pool = codec.decode(Pool, pool)
        owner = home.locks.owner(name)
        self._alive = home.locks.hold(owner)
        self._core = worker_of_pool(home, self._pool, _place(name, self._pool.name, owner))
        threading.Thread(target=self._core.live, name="life", daemon=True).start()
        _on_sigterm(self._leave)

    def report(self) -> bytes:
        return encode(self._core.report())

    def accept(self, job: bytes, task: bytes) -> bool:
        return self._core.accept(codec.decode(Job, job), codec.decode(Task, task))

    def drain(self, cause: str) -> None:
        self._core.drain(cause)

    def _leave(self) -> None:
        """SIGTERM (a node that goes, a spot notice): drain within the grace, then end."""
        self._core.drain("sigterm")
        self._core.wait(2 * self._home.settings.drain_grace_s + 5)
        os._exit(0)


def _place(name: str, pool: str, owner: str) -> Report:
    context = ray.get_runtime_context()
    accelerators = ",".join(str(gpu) for gpu in ray.get_gpu_ids())
    return Report(
        name=name,
        pool=pool,
        phase=Phase.STARTING,
        owner=owner,
        host=os.uname().nodename,
        node=context.get_node_id(),
        pid=os.getpid(),
        accelerators=accelerators,
    )


def _on_sigterm(leave: Callable[[], None]) -> None:
    """Ray runs constructors in the main thread, where alone a handler can be set; its own would end us at once."""
    if threading.current_thread() is not threading.main_thread():
        log.warning("sigterm_unheeded")
        return

    def handler(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=leave, name="leave", daemon=True).start()

    signal.signal(signal.SIGTERM, handler)
