"""The fleet actor: supervises, and makes all others."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import orjson
import structlog
from ray.exceptions import RayError
from ray.util import list_named_actors

from infra.bootstrap import open_home
from infra.settings.wire import from_json
from jobs.pools import pool_named
from workers.actors.common import (
    DISPATCHER,
    ROLL_CALL_S,
    SCHEDULER,
    Fatal,
    end_actor,
    in_background,
    lasting,
)
from workers.actors.dispatcher import DispatcherActor
from workers.actors.ground import RayGround
from workers.actors.scheduler import SchedulerActor
from workers.actors.showing import LIST_S, Listing, show_actor, to_wire
from workers.figures import fleet_figures
from workers.fleet import Standing
from workers.loops import Loop, steady
from workers.main import METRICS_FOLDER
from workers.reports import Phase, encode
from workers.wiring import fleet_of

log = structlog.get_logger()


class FleetActor:
    """Supervises; made first, and makes the others."""

    def __init__(self, raw: bytes) -> None:
        self._home = open_home(from_json(raw))
        self._raw = raw
        self._ground = RayGround(self._home.settings)
        self._fleet = fleet_of(self._home, self._home.settings.pools, self._ground)
        self._lock = threading.Lock()
        self._listing = Listing(self._home.settings.home / METRICS_FOLDER)
        self._shown = show_actor(self._home, {"role": "fleet"}, [lambda: fleet_figures(self._fleet)])
        in_background("begin", self._begin)

    def _begin(self) -> None:
        self._ground.sweep()
        Loop("fleet", steady(self._step), Fatal(), every_s=ROLL_CALL_S).start()
        if self._shown.target:
            Loop("listing", self._list, Fatal(), every_s=LIST_S).start()

    def _step(self) -> None:
        with self._lock:
            if not self._fleet.closing:
                self._make_others()
            self._fleet.step()

    def _list(self) -> None:
        """A full disk, or a Ray that does not answer, costs a list and no more."""
        try:
            self._listing.step()
        except (OSError, RayError) as error:
            log.warning("figures_not_listed", error=repr(error))

    def _make_others(self) -> None:
        there = set(list_named_actors())
        if SCHEDULER not in there:
            lasting(SchedulerActor, SCHEDULER).remote(self._raw)
        for pool in self._home.settings.pools:
            for number in range(pool.dispatchers):
                name = f"{DISPATCHER}{pool.name}.{number}"
                if name not in there:
                    lasting(DispatcherActor, name).remote(self._raw, pool.name)

    # ---- asked by the command line: JSON in bytes ------------------------------------------------

    def pid(self) -> int:
        return os.getpid()

    def figures(self) -> bytes:
        return to_wire(self._shown)

    def settings(self) -> bytes:
        """What it was started with."""
        return self._raw

    def workers(self) -> bytes:
        """A list of reports, without what only the API is to know."""
        reports = [r for s in self._fleet.standings.values() for _, r in sorted(s.reports.items())]
        return orjson.dumps([orjson.loads(encode(report.evolve(secret=""))) for report in reports])

    def pools(self) -> bytes:
        """By pool: workers wanted, there and running; failures in a row; seconds until the next start."""
        return orjson.dumps({name: _standing_facts(s) for name, s in self._fleet.standings.items()})

    def asked(self, pool: str, short: bool) -> float:  # noqa: FBT001 - by place, as everything that crosses Ray
        """See `workers.fleet.Fleet`. Without the lock: a step may take its time, and a request does not."""
        return self._fleet.asked(pool, short=short)

    def drain(self, name: str) -> bool:
        with self._lock:
            return self._fleet.drain(name)

    def roll(self, pool: str) -> int:
        pool_named(pool, self._home.settings.pools)
        with self._lock:
            return self._fleet.roll(pool)

    def close(self) -> bool:
        """Drain everything; ask again until the answer is True: then nothing is left but this actor."""
        with self._lock:
            self._fleet.close()
            if not self._fleet.empty:
                return False
        for name in list_named_actors():
            if name == SCHEDULER or name.startswith(DISPATCHER):
                end_actor(name)
        return True


def _standing_facts(standing: Standing) -> dict[str, Any]:
    phases = [report.phase for report in standing.reports.values()]
    return {
        "wanted": standing.wanted,
        "there": len(phases),
        "running": phases.count(Phase.RUNNING),
        "failures": standing.failures,
        "start_in_s": max(0.0, round(standing.not_before_s - time.monotonic(), 1)) if standing.failures else 0.0,
        "to_roll": len(standing.to_roll),
    }
