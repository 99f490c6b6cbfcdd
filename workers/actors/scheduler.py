"""The scheduler actor: all pools, each under a leadership of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from infra.bootstrap import open_home
from infra.settings.wire import from_json
from jobs.pools import hands_of
from workers.actors.common import ROLL_CALL_S, Fatal, can_follow, in_background, workers_of
from workers.actors.showing import show_actor, to_wire
from workers.scheduling import Scheduling


class SchedulerActor:
    """Of all pools, each under a leadership of its own."""

    def __init__(self, settings: bytes) -> None:
        home = open_home(from_json(settings))
        self._pools = home.settings.pools
        self._counts: Mapping[str, int] = {}
        self._called_s = -ROLL_CALL_S
        scheduling = Scheduling(home, self._pools, Fatal(), workers=self._workers, can_follow=can_follow)
        self._shown = show_actor(home, {"role": "scheduler"}, scheduling.sources())
        in_background("begin", scheduling.start)

    def pid(self) -> int:
        return os.getpid()

    def figures(self) -> bytes:
        return to_wire(self._shown)

    def _workers(self) -> Mapping[str, int]:
        """As Ray has them; it is asked now and then."""
        now = time.monotonic()
        if now - self._called_s >= ROLL_CALL_S:
            self._called_s = now
            there = {pool.name: len(workers_of(pool.name)) for pool in self._pools}
            self._counts = {pool.name: sum(there[name] for name in hands_of(pool, self._pools)) for pool in self._pools}
        return self._counts
