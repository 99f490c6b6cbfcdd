"""The worker actor: one engine on its accelerators."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

import orjson
import ray
import structlog

from infra.bootstrap import open_home
from infra.engines.spec import RayPlace
from infra.heap import settle_heap
from infra.settings.wire import from_json
from infra.spot import notice_source
from infra.sql import codec
from jobs.model import Job, Task
from jobs.pools import Pool, placement
from workers.about import named_thread
from workers.actors.common import WORKER, Fatal
from workers.actors.showing import show_actor, to_wire
from workers.loops import Loop
from workers.notices import Notice
from workers.reports import Phase, Report, encode
from workers.wiring import serve_door, worker_of_pool

log = structlog.get_logger()

HELD_S = 600.0
"""Clouds give half a minute to two minutes. A machine that is still there afterwards may be used again."""


class WorkerActor:
    """One engine on its accelerators; see `workers.pool_worker`."""

    def __init__(self, settings: bytes, pool: bytes, name: str) -> None:
        self._home = home = open_home(from_json(settings))
        self._pool = codec.decode(Pool, pool)
        owner = home.locks.owner(name)
        self._alive = home.locks.hold(owner)
        self._core = worker_of_pool(home, self._pool, _place(name, self._pool.name, owner), _stages(self._pool, name))
        if self._pool.takes_requests:
            server = serve_door(self._core, ray.util.get_node_ip_address())
            self._core.place = self._core.place.evolve(door=server.address, secret=server.secret)
        self._shown = show_actor(
            home, {"role": "worker", "worker": name, "pool": self._pool.name}, [self._core.figures]
        )
        named_thread("life", self._core.live).start()
        _on_sigterm(self._leave)
        if home.settings.spot_notice:
            look = notice_source(home.settings.spot_notice, home.settings.home)
            notice = Notice(look=look, leave=self._leave_machine)
            Loop("notice", notice.step, Fatal(), every_s=home.settings.spot_poll_s).start()
        settle_heap()

    def figures(self) -> bytes:
        return to_wire(self._shown)

    def report(self) -> bytes:
        return encode(self._core.report())

    def accept(self, job: bytes, task: bytes) -> bool:
        return self._core.accept(codec.decode(Job, job), codec.decode(Task, task))

    def refusal_of(self, schema: str) -> bytes:
        """[whether the engine was asked, what it says]."""
        return orjson.dumps(self._core.refusal_of(schema))

    def drain(self, cause: str) -> None:
        self._core.drain(cause)

    def _leave(self) -> None:
        """SIGTERM (a node that goes): drain within the grace, then end."""
        self._core.drain("sigterm")
        self._core.wait(2 * self._home.settings.drain_grace_s + 5)
        os._exit(0)

    def _leave_machine(self) -> None:
        """Drain, but hold the place for as long as the machine may last, and say so: nobody should begin anew on it."""
        self._core.drain("spot_notice", stay=True)
        time.sleep(HELD_S)
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


def _stages(pool: Pool, name: str) -> RayPlace | None:
    """Where the engine's own workers begin, if there are pipeline stages: in the bundles beside this actor."""
    if placement(pool).one_node:
        return None
    context = ray.get_runtime_context()
    return RayPlace(address=context.gcs_address, namespace=context.namespace, group=WORKER + name)


def _on_sigterm(leave: Callable[[], None]) -> None:
    """Ray runs constructors in the main thread, where alone a handler can be set; its own would end us at once."""
    if threading.current_thread() is not threading.main_thread():
        log.warning("sigterm_unheeded")
        return

    def handler(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=leave, name="leave", daemon=True).start()

    signal.signal(signal.SIGTERM, handler)
