"""The scheduler actor: all pools, each under a leadership of its own."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import structlog

from infra.bootstrap import open_home
from infra.settings.wire import from_json
from workers.actors.common import (
    ROLL_CALL_S,
    TICK_S,
    Fatal,
    in_background,
    workers_of,
)
from workers.dispatcher import topics_of
from workers.loops import Loop, steady
from workers.main import tidy
from workers.pool_scheduler import PoolScheduler
from workers.wiring import dead_topic, scheduler_of_pool

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
            home.broker.ensure_topics([*topics, dead_topic(settings)])
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
