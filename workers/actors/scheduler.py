"""The scheduler actor: all pools, each under a leadership of its own."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import structlog

from infra.bootstrap import Home, open_home
from infra.settings.wire import from_json
from jobs.ending import PauseRule
from jobs.picking import PickPolicy
from jobs.pools import Pool
from jobs.ports.store import Leader
from jobs.release import ReleasePolicy
from workers.actors.common import (
    ROLL_CALL_S,
    TICK_S,
    Fatal,
    group_of,
    in_background,
    steady,
    workers_of,
)
from workers.dispatcher import topics_of
from workers.loops import Loop
from workers.main import finaliser_of, tidy
from workers.pool_scheduler import PoolScheduler
from workers.reaper import Reaper
from workers.scheduler import SchedulePolicy

log = structlog.get_logger()


_TIDY_S = 30.0
"""Jobs that ended without their `_SUCCESS`, because a store was away or a process died, are looked for so often."""


class SchedulerActor:
    """Of all pools, each under a leadership of its own."""

    def __init__(self, settings: bytes) -> None:
        self._home = open_home(from_json(settings))
        self._pools: dict[str, PoolScheduler] = {}
        self._counts: dict[str, int] = {}
        self._called_s = -ROLL_CALL_S
        in_background("begin", self._begin)

    def pid(self) -> int:
        return os.getpid()

    def _begin(self) -> None:
        home, settings = self._home, self._home.settings
        threads = ThreadPoolExecutor(4, thread_name_prefix="plan")
        owner = home.locks.owner(f"scheduler-{os.getpid()}")
        for pool in settings.pools:
            topics = topics_of(settings.topic_prefix, [pool.name])
            home.broker.ensure_topics([*topics, f"{settings.topic_prefix}.dead"])
            self._pools[pool.name] = scheduler_of_pool(home, pool, home.store.lead(pool.name, owner), threads)
            log.info("pool_led", pool=pool.name, owner=owner, epoch=self._pools[pool.name].leader.epoch)
        Loop("tick", steady(self._tick), Fatal(), every_s=TICK_S).start()
        Loop("seal", steady(lambda: tidy(home)), Fatal(), every_s=_TIDY_S).start()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._called_s >= ROLL_CALL_S:
            self._called_s = now
            self._counts = {name: len(workers_of(name)) for name in self._pools}
        for name, scheduler in self._pools.items():
            scheduler.step(self._counts[name])


def scheduler_of_pool(home: Home, pool: Pool, leader: Leader, threads: ThreadPoolExecutor) -> PoolScheduler:
    """The scheduler of a declared pool, under a leadership that was taken for it."""
    settings = home.settings
    release = ReleasePolicy()
    return PoolScheduler(
        store=home.store,
        broker=home.broker,
        reaper=Reaper(
            store=home.store,
            broker=home.broker,
            clock=home.clock,
            group=group_of(settings, pool.name),
            alive=home.locks.is_alive,
            lease_s=settings.lease_s,
        ),
        finaliser=finaliser_of(home),
        clock=home.clock,
        ids=home.ids,
        leader=leader,
        pool=pool.name,
        policy=SchedulePolicy(prefix=settings.topic_prefix, release=release),
        planner=home.planner,
        picking=PickPolicy(lower_share=settings.pool_lower_share, release=release),
        pause=PauseRule(least_rows=settings.pause_min_rows),
        threads=threads,
    )
