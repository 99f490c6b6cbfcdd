"""Composition root of `nightmill up` on one machine: every pool's dispatcher and workers, as threads.

The same parts as in a cluster; engines are processes of their own here too, and so is the scheduling, unless it is to
be in this one. What crosses Ray there is a call here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from infra.bootstrap import Home
from infra.locks import FileLock
from jobs.figures import Sample, Source
from jobs.model import Job, Task, Usage
from jobs.pools import Pool, hands_of
from jobs.ports.live import Door
from workers.apart import Apart
from workers.crews import Crowd, Room
from workers.dispatcher import Dispatcher
from workers.figures import dispatcher_figures, fleet_figures
from workers.finding import PoolWays
from workers.loops import Alarm, Loop, steady
from workers.pool_worker import PoolWorker
from workers.reaper import end_lease
from workers.reports import Phase, Report
from workers.scheduling import Scheduling
from workers.wiring import dispatcher_of_pool, fleet_of, front_of, worker_of_pool

log = structlog.get_logger()

LOOK_S = 0.1
FLEET_S = 1.0
PROBE_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hand:
    """A worker of this process. alive: the lock that shows its owner lives."""

    pool: str
    core: PoolWorker
    alive: FileLock


@dataclass(slots=True)
class LocalGround:
    """`workers.fleet.Ground`: a worker is a thread here, its engine a child of this process."""

    home: Home
    _hands: dict[str, _Hand] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def workers(self, pool: str) -> list[str]:
        return sorted(name for name, hand in self._there().items() if hand.pool == pool)

    def reports(self, names: Sequence[str]) -> Mapping[str, Report]:
        there = self._there()
        return {name: there[name].core.report() for name in names if name in there}

    def start(self, pool: Pool, name: str, avoid: frozenset[str] = frozenset()) -> None:  # noqa: ARG002 - one node
        owner = self.home.locks.owner(name)
        place = Report(
            name=name, pool=pool.name, phase=Phase.STARTING, owner=owner, host=os.uname().nodename, pid=os.getpid()
        )
        core = worker_of_pool(self.home, pool, place)
        with self._lock:
            self._hands[name] = _Hand(pool=pool.name, core=core, alive=self.home.locks.hold(owner))
        threading.Thread(target=core.live, name=f"life-{name}", daemon=True).start()

    def drain(self, name: str) -> None:
        if (hand := self._there().get(name)) is not None:
            hand.core.drain("drain")

    def remove(self, name: str) -> None:
        """A thread cannot be killed: one that is not over loses its engine, and with it its reason to live."""
        with self._lock:
            hand = self._hands.pop(name, None)
        if hand is not None:
            if not hand.core.report().over:
                hand.core.drain("removed")
                hand.core.stop_engine()
            hand.alive.close()

    def doors(self, pool: str) -> list[Door]:
        """Where its workers take requests."""
        return [hand.core for hand in self._there().values() if hand.pool == pool]

    def rooms(self, pools: Collection[str]) -> dict[str, Room]:
        """By owner, of the workers of these pools that run."""
        reports = [hand.core.report() for hand in self._there().values() if hand.pool in pools]
        return {report.owner: report.room for report in reports if report.phase is Phase.RUNNING}

    def accept(self, job: Job, task: Task) -> bool:
        """Hand a task to its owner; False if it is not taken."""
        name = str(task.owner).partition("@")[0]
        hand = self._there().get(name)
        return hand is not None and hand.core.accept(job, task)

    def figures(self) -> Iterator[Sample]:
        """Of all workers."""
        for hand in self._there().values():
            yield from hand.core.figures()

    def _there(self) -> dict[str, _Hand]:
        with self._lock:
            return dict(self._hands)


class Embedded:
    """`start`, then `close`. alarm: rings when a loop failed; its error says why.

    pools: those declared, or made for the models at hand. front: takes requests to their workers.
    """

    def __init__(self, home: Home, pools: Sequence[Pool]) -> None:
        self.alarm = Alarm()
        self.pools = pools
        self._home = home
        self._ground = LocalGround(home)
        self._fleet = fleet_of(home, pools, self._ground)
        self.front = front_of(home, PoolWays(pools=pools, doors_of=self._ground.doors, ask=self._asked))
        self._dispatchers: dict[str, Dispatcher] = {}
        self._hands = {pool.name: hands_of(pool, pools) for pool in pools}
        self._scheduling: Scheduling | Apart = (
            Apart(replace(home.settings, pools=tuple(pools)), self.alarm, workers=self._workers)
            if home.settings.up_processes > 1
            else Scheduling(home, pools, self.alarm, workers=self._workers)
        )
        self._guard = threading.Lock()
        self._fleet_loop = self._loop("fleet", self._step_fleet, FLEET_S)
        self._loops = [self._fleet_loop, self._loop("probes", self.front.step, PROBE_S)]

    def start(self) -> None:
        """Begin, and take the lead of every pool, or let the process that schedules take it: `led` says when it has.

        Raises Unavailable where a backend does not answer.
        """
        for pool in self.pools:
            self._loops += self._dispatch(pool)
        for loop in self._loops:
            loop.start()
        self._scheduling.start()

    def reports(self) -> list[Report]:
        """Of all workers, by name."""
        with self._guard:
            return [report for s in self._fleet.standings.values() for _, report in sorted(s.reports.items())]

    def sources(self) -> list[Source]:
        """What shows the figures of this process."""
        return [self._figures, *self._scheduling.sources()]

    @property
    def led(self) -> bool:
        """Whether somebody schedules."""
        return self._scheduling.led

    @property
    def elsewhere(self) -> str:
        """Where the figures of the scheduling are, if it has a process of its own that shows some."""
        return self._scheduling.target

    def _figures(self) -> Iterator[Sample]:
        for pool, dispatcher in [*self._dispatchers.items()]:
            yield from dispatcher_figures(dispatcher, pool)
        yield from self._ground.figures()
        yield from fleet_figures(self._fleet)
        yield from self.front.figures()

    def wake(self) -> None:
        """There is something new to schedule. The fleet looks often enough by itself, unless a pool sleeps."""
        self._scheduling.wake()
        if not all(self._ground.workers(pool.name) for pool in self.pools):
            self._fleet_loop.wake()

    def close(self, timeout_s: float) -> bool:
        """Drain all workers, then end; whether they were drained in time. What is not done stays in the database."""
        with self._guard:
            self._fleet.close()
        until = time.monotonic() + timeout_s
        while not (drained := self._fleet.empty) and time.monotonic() < until and not self.alarm.rang:
            self._fleet_loop.wake()
            time.sleep(LOOK_S)
        self._scheduling.close()
        for loop in reversed(self._loops):
            loop.stop()
        for pool in self.pools:
            for name in self._ground.workers(pool.name):
                self._ground.remove(name)
        return drained

    # ---- the loops ------------------------------------------------------------------------------

    def _loop(self, name: str, step: Callable[[], object], every_s: float = 0.0) -> Loop:
        return Loop(name, steady(step), self.alarm, every_s=every_s)

    def _workers(self) -> dict[str, int]:
        there = {pool.name: len(self._ground.workers(pool.name)) for pool in self.pools}
        return {name: sum(there[hand] for hand in hands) for name, hands in self._hands.items()}

    def _asked(self, pool: str, short: bool) -> float:  # noqa: FBT001 - see `PoolWays`
        """Requests come. Whoever is to have a worker should not wait for the fleet's next look."""
        soon_s = self._fleet.asked(pool, short=short)
        if short:
            self._fleet_loop.wake()
        return soon_s

    def _step_fleet(self) -> None:
        with self._guard:
            self._fleet.step()

    def _dispatch(self, pool: Pool) -> list[Loop]:
        home, ground = self._home, self._ground

        def give_back(task: Task) -> None:
            end_lease(home.store, task, Usage(), "not_accepted")

        crowd = Crowd(hand=ground.accept, give_back=give_back)
        dispatcher = self._dispatchers[pool.name] = dispatcher_of_pool(home, pool.name, crowd)

        def lease() -> None:
            if dispatcher.lease_step():
                self._scheduling.wake()

        return [
            self._loop(f"look-{pool.name}", lambda: crowd.seen(ground.rooms(self._hands[pool.name])), LOOK_S),
            self._loop(f"poll-{pool.name}", dispatcher.poll_step),
            self._loop(f"lease-{pool.name}", lease),
        ]
