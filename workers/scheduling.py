"""Composition root of what one process schedules for a whole Nightmill: its pools, batches, webhooks and ingress.

A cluster's scheduler actor, the process beside `nightmill up` and, where that has none, `nightmill up` itself run it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from infra.bootstrap import Home
from jobs.figures import Sample, Source
from jobs.pools import Pool
from jobs.submit import SchemaCheck
from jobs.topics import dead_topic, topics_of
from workers.figures import ingress_figures, scheduler_figures
from workers.ingress import Ingress, ingress_loops
from workers.loops import Alarm, Loop, steady
from workers.main import database_figures, ingress_of, tidy
from workers.pool_scheduler import PoolScheduler
from workers.wiring import Planners, delivering_of, keeping_of, scheduler_of_pool, sweep_files

log = structlog.get_logger()

_TICK_S = 0.1
_KEEP_S = 0.2
"""Between two looks at the batches that are open."""
_DELIVER_S = 0.5
"""Between two looks at the deliveries that are due."""
_TIDY_S = 30.0
"""Jobs that ended without their `_SUCCESS`, because a store was away or a process died, are looked for so often."""


class Scheduling:
    """`start`, then `close`. alarm: rings when a loop failed. workers: how many each pool may give work to now.

    can_follow: asks an engine about the output schema of a job that comes by a topic. led, target: as `Apart` has them;
    whoever runs this shows its figures.
    """

    led = True
    target = ""

    def __init__(
        self,
        home: Home,
        pools: Sequence[Pool],
        alarm: Alarm,
        *,
        workers: Callable[[], Mapping[str, int]],
        can_follow: SchemaCheck | None = None,
    ) -> None:
        self._home = home
        self._pools = pools
        self._alarm = alarm
        self._workers = workers
        self._can_follow = can_follow
        self._schedulers: dict[str, PoolScheduler] = {}
        self._ingress: Ingress | None = None
        self._loops: list[Loop] = []
        self._woken: list[Loop] = []
        self._close: list[Callable[[], None]] = []

    def start(self) -> None:
        """Take the lead of every pool and begin. Raises Unavailable where a backend does not answer: then again."""
        home = self._home
        planners, keeping, delivering = Planners(), keeping_of(home), delivering_of(home)
        self._schedulers = self._led(planners)
        self._ingress = ingress_of(home, self._pools, self._can_follow)
        self._close = [planners.close, keeping.close, delivering.close]
        self._woken = [self._loop("tick", self._step, _TICK_S), self._loop("batches", keeping.step, _KEEP_S)]
        self._loops = [
            *self._woken,
            self._loop("seal", lambda: tidy(home), _TIDY_S),
            self._loop("webhooks", delivering.step, _DELIVER_S),
        ]
        if (every_s := home.settings.sweep_every_s) > 0:
            self._loops.append(self._loop("sweep", lambda: sweep_files(home), every_s))
        if self._ingress is not None:
            self._loops += ingress_loops(self._ingress, self._alarm)
        for loop in self._loops:
            loop.start()

    def _led(self, planners: Planners) -> dict[str, PoolScheduler]:
        home, prefix = self._home, self._home.settings.topic_prefix
        owner = home.locks.owner(f"scheduler-{os.getpid()}")
        led: dict[str, PoolScheduler] = {}
        for pool in self._pools:
            home.broker.ensure_topics([*topics_of(prefix, [pool.name]), dead_topic(prefix)])
            leader = home.store.lead(pool.name, owner)
            led[pool.name] = scheduler_of_pool(home, pool, leader, planners)
            log.info("pool_led", pool=pool.name, owner=owner, epoch=leader.epoch)
        return led

    def wake(self) -> None:
        """There is something new to schedule, or to keep."""
        for loop in self._woken:
            loop.wake()

    def sources(self) -> list[Source]:
        """What shows its figures, and those of the whole database."""
        return [self._figures, database_figures(self._home)]

    def _figures(self) -> Iterator[Sample]:
        for scheduler in [*self._schedulers.values()]:
            yield from scheduler_figures(scheduler)
        if self._ingress is not None:
            yield from ingress_figures(self._ingress)

    def close(self) -> None:
        """End what is under way. What is not done stays in the database."""
        for loop in reversed(self._loops):
            loop.stop()
        for close in self._close:
            close()

    def _step(self) -> None:
        workers = self._workers()
        for name, scheduler in self._schedulers.items():
            scheduler.step(workers.get(name, 0))

    def _loop(self, name: str, step: Callable[[], object], every_s: float) -> Loop:
        return Loop(name, steady(step), self._alarm, every_s=every_s)
