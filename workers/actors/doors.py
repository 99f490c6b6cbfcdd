"""The doors of a cluster's workers, as a replica of the API sees them: found by their reports, kept connected."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import ray
import structlog
from ray.exceptions import RayError

from infra.bootstrap import Home
from infra.live import RemoteDoor
from jobs.ports.live import Door
from workers.actors.common import FLEET, ROLL_CALL_S, Fatal, Roster, namespace, workers_of
from workers.actors.showing import show_actor
from workers.finding import PoolWays
from workers.fleet import START_S
from workers.front import Front
from workers.loops import Loop
from workers.wiring import front_of

log = structlog.get_logger()

PROBE_S = 0.25
_WORDS_S = 10.0
"""A fleet that has not answered for so long is asked anew."""


class RemoteDoors:
    """`step` in a thread of its own, once a second; the others from any. Ray is asked by `step` alone.

    loop: in which those who ask are told.
    """

    def __init__(self, pools: Sequence[str], space: str, loop: asyncio.AbstractEventLoop) -> None:
        self._pools = pools
        self._space = space
        self._loop = loop
        self._roster = Roster(space)
        self._doors: dict[str, dict[str, tuple[str, RemoteDoor]]] = {pool: {} for pool in pools}
        self._asked: dict[str, bool] = {}
        self._words: dict[str, tuple[Any, int]] = {}
        self._soon_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._steps = 0

    def of(self, pool: str) -> list[Door]:
        """Of the workers of a pool."""
        return [door for _, door in list(self._doors.get(pool, {}).values())]

    def asked(self, pool: str, short: bool) -> float:  # noqa: FBT001 - see `PoolWays`
        """Noted; the fleet is told of it within a second. As it last said."""
        with self._lock:
            self._asked[pool] = short or self._asked.get(pool, False)
        return self._soon_s.get(pool, START_S)

    def step(self) -> None:
        """A Ray that does not answer is asked again the next time: the doors that are known stay."""
        self._steps += 1
        try:
            self._find()
            self._tell_fleet()
        except (RayError, ValueError) as error:  # ValueError: the fleet is not there now
            log.warning("doors_not_found", error=repr(error))

    # ---- inside -----------------------------------------------------------------------------------

    def _find(self) -> None:
        there = {pool: workers_of(pool, self._space) for pool in self._pools}
        names = [name for workers in there.values() for name in workers]
        reports = self._roster.reports(names, timeout_s=ROLL_CALL_S)
        for pool, workers in there.items():
            doors = self._doors[pool]
            for name in doors.keys() - set(workers):
                doors.pop(name)[1].close()
            for name in workers:
                report = reports.get(name)
                if report is not None and report.door:
                    self._open(doors, name, report.door, report.secret)

    def _open(self, doors: dict[str, tuple[str, RemoteDoor]], name: str, address: str, secret: str) -> None:
        known = doors.get(name)
        if known is not None and known[0] == address:
            return
        doors[name] = address, RemoteDoor(name, address, secret, self._loop)
        if known is not None:
            known[1].close()
        log.info("door_found", worker=name, address=address)

    def _tell_fleet(self) -> None:
        with self._lock:
            asked, self._asked = self._asked, {}
        for pool, (word, since) in list(self._words.items()):
            ready, _ = ray.wait([word], timeout=0)
            if ready or self._steps - since > _WORDS_S / ROLL_CALL_S:
                del self._words[pool]
            if ready:
                self._soon_s[pool] = float(ray.get(word))
        if asked:
            fleet = ray.get_actor(FLEET, namespace=self._space)
            for pool, short in asked.items():
                self._words[pool] = fleet.asked.remote(pool, short), self._steps


def front_of_replica(home: Home) -> Front:
    """The front of one replica of the API, made in its event loop; its threads are started."""
    settings = home.settings
    pools = [pool for pool in settings.pools if pool.takes_requests]
    doors = RemoteDoors([pool.name for pool in pools], namespace(settings), asyncio.get_running_loop())
    front = front_of(home, PoolWays(pools=pools, doors_of=doors.of, ask=doors.asked))
    Loop("doors", doors.step, Fatal(), every_s=ROLL_CALL_S).start()
    Loop("probes", front.step, Fatal(), every_s=PROBE_S).start()
    show_actor(home, {"role": "api"}, [front.figures])
    return front
