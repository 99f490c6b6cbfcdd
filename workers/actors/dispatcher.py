"""The dispatcher actor: from the topics of a pool to its workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import ray
import structlog
from ray.exceptions import GetTimeoutError, RayError

from infra.bootstrap import open_home
from infra.settings.wire import from_json
from infra.sql import codec
from jobs.figures import Sample
from jobs.model import Job, Task, Usage
from jobs.pools import hands_of, pool_named
from workers.actors.common import (
    LOOK_S,
    ROLL_CALL_S,
    Fatal,
    Roster,
    in_background,
    workers_of,
)
from workers.actors.showing import show_actor, to_wire
from workers.crews import Crowd
from workers.dispatcher import Dispatcher
from workers.figures import dispatcher_figures
from workers.loops import Loop, steady
from workers.reaper import end_lease
from workers.reports import Phase
from workers.wiring import dispatcher_of_pool

log = structlog.get_logger()


class DispatcherActor:
    """Of one pool: a poll thread, a lease thread, and one that asks the workers for their room."""

    def __init__(self, settings: bytes, pool: str) -> None:
        self._home = open_home(from_json(settings))
        self._pool = pool
        self._pools = hands_of(pool_named(pool, self._home.settings.pools), self._home.settings.pools)
        self._roster = Roster()
        self._names: list[str] = []
        self._called_s = -ROLL_CALL_S
        self._by_owner: dict[str, str] = {}
        self._crowd = Crowd(hand=self._hand, give_back=self._give_back)
        self._dispatcher: Dispatcher | None = None
        self._shown = show_actor(self._home, {"role": "dispatcher", "pool": pool}, [self._samples])
        in_background("begin", self._begin)

    def pid(self) -> int:
        return os.getpid()

    def figures(self) -> bytes:
        return to_wire(self._shown)

    def _samples(self) -> Iterable[Sample]:
        return dispatcher_figures(self._dispatcher, self._pool) if self._dispatcher is not None else ()

    def _begin(self) -> None:
        dispatcher = self._dispatcher = dispatcher_of_pool(self._home, self._pool, self._crowd)
        alarm = Fatal()
        Loop("look", steady(self._look), alarm, every_s=LOOK_S).start()
        Loop("poll", steady(dispatcher.poll_step), alarm).start()
        Loop("lease", steady(dispatcher.lease_step), alarm).start()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._called_s >= ROLL_CALL_S:
            self._called_s, self._names = now, [name for pool in self._pools for name in workers_of(pool)]
        reports = self._roster.reports(self._names, timeout_s=ROLL_CALL_S)
        running = {r.owner: r for r in reports.values() if r.phase is Phase.RUNNING}
        self._by_owner = {owner: report.name for owner, report in running.items()}
        self._crowd.seen({owner: report.room for owner, report in running.items()})

    def _hand(self, job: Job, task: Task) -> bool:
        """Within a beat, or not at all: if it arrives later, the worker's first beat tells that the lease is over."""
        handle = self._roster.handle(self._by_owner.get(str(task.owner), ""))
        if handle is None:
            return False
        try:
            taken = handle.accept.remote(codec.encode(job).encode(), codec.encode(task).encode())
            return bool(ray.get(taken, timeout=self._home.settings.beat_s))
        except (GetTimeoutError, RayError) as error:
            log.warning("hand_over_failed", owner=task.owner, error=repr(error))
            return False

    def _give_back(self, task: Task) -> None:
        end_lease(self._home.store, task, Usage(), "not_accepted")
