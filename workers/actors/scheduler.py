"""The scheduler actor: all pools, each under a leadership of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import structlog

from infra.bootstrap import open_home
from infra.settings.wire import from_json
from jobs.figures import Sample
from jobs.pools import hands_of
from jobs.topics import dead_topic, topics_of
from workers.actors.common import (
    ROLL_CALL_S,
    TICK_S,
    Fatal,
    can_follow,
    in_background,
    workers_of,
)
from workers.actors.showing import show_actor, to_wire
from workers.figures import ingress_figures, scheduler_figures
from workers.ingress import Ingress, ingress_loops
from workers.loops import Loop, steady
from workers.main import database_figures, ingress_of, tidy
from workers.pool_scheduler import PoolScheduler
from workers.wiring import Planners, delivering_of, keeping_of, scheduler_of_pool, sweep_files

log = structlog.get_logger()


_KEEP_S = 0.25
"""Between two looks at the batches that are open."""
_DELIVER_S = 0.5
"""Between two looks at the deliveries that are due."""
_TIDY_S = 30.0
"""Jobs that ended without their `_SUCCESS`, because a store was away or a process died, are looked for so often."""


class SchedulerActor:
    """Of all pools, each under a leadership of its own."""

    def __init__(self, settings: bytes) -> None:
        self._home = open_home(from_json(settings))
        self._pools: dict[str, PoolScheduler] = {}
        self._counts: dict[str, int] = {}
        self._called_s = -ROLL_CALL_S
        self._ingress: Ingress | None = None
        self._shown = show_actor(self._home, {"role": "scheduler"}, [self._samples, database_figures(self._home)])
        in_background("begin", self._begin)

    def pid(self) -> int:
        return os.getpid()

    def figures(self) -> bytes:
        return to_wire(self._shown)

    def _samples(self) -> Iterator[Sample]:
        for scheduler in [*self._pools.values()]:
            yield from scheduler_figures(scheduler)
        if self._ingress is not None:
            yield from ingress_figures(self._ingress)

    def _begin(self) -> None:
        home, settings = self._home, self._home.settings
        planners = Planners()
        owner = home.locks.owner(f"scheduler-{os.getpid()}")
        for pool in settings.pools:
            topics = topics_of(settings.topic_prefix, [pool.name])
            home.broker.ensure_topics([*topics, dead_topic(settings.topic_prefix)])
            self._pools[pool.name] = scheduler_of_pool(home, pool, home.store.lead(pool.name, owner), planners)
            log.info("pool_led", pool=pool.name, owner=owner, epoch=self._pools[pool.name].leader.epoch)
        Loop("tick", steady(self._tick), Fatal(), every_s=TICK_S).start()
        Loop("seal", steady(lambda: tidy(home)), Fatal(), every_s=_TIDY_S).start()
        Loop("batches", steady(keeping_of(home).step), Fatal(), every_s=_KEEP_S).start()
        Loop("webhooks", steady(delivering_of(home).step), Fatal(), every_s=_DELIVER_S).start()
        if settings.sweep_every_s > 0:
            Loop("sweep", steady(lambda: sweep_files(home)), Fatal(), every_s=settings.sweep_every_s).start()
        if (ingress := ingress_of(home, settings.pools, can_follow)) is not None:
            self._ingress = ingress
            for loop in ingress_loops(ingress, Fatal()):
                loop.start()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._called_s >= ROLL_CALL_S:
            self._called_s = now
            pools = self._home.settings.pools
            there = {pool.name: len(workers_of(pool.name)) for pool in pools}
            self._counts = {pool.name: sum(there[name] for name in hands_of(pool, pools)) for pool in pools}
        for name, scheduler in self._pools.items():
            scheduler.step(self._counts[name])
