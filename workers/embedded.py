"""Composition root of `nightmill up` in one process: every pool's scheduler, dispatcher and workers, as threads.

The same parts as in a cluster; engines are processes of their own here too. What crosses Ray there is a call here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from infra.bootstrap import Home
from infra.locks import FileLock
from jobs.figures import Sample
from jobs.model import Job, Task, Usage
from jobs.pools import Pool, hands_of
from jobs.ports.live import Door
from jobs.topics import dead_topic, topics_of
from workers.crews import Crowd, Room
from workers.dispatcher import Dispatcher
from workers.figures import dispatcher_figures, fleet_figures, ingress_figures, scheduler_figures
from workers.finding import PoolWays
from workers.ingress import Ingress, ingress_loops
from workers.loops import Alarm, Loop, steady
from workers.main import ingress_of, tidy
from workers.pool_scheduler import PoolScheduler
from workers.pool_worker import PoolWorker
from workers.reaper import end_lease
from workers.reports import Phase, Report
from workers.wiring import (
    Planners,
    delivering_of,
    dispatcher_of_pool,
    fleet_of,
    front_of,
    scheduler_of_pool,
    sweep_files,
    worker_of_pool,
)

log = structlog.get_logger()

TICK_S = 0.1
LOOK_S = 0.1
FLEET_S = 0.5
TIDY_S = 30.0
DELIVER_S = 0.5
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
        self._schedulers: dict[str, PoolScheduler] = {}
        self._dispatchers: dict[str, Dispatcher] = {}
        self._hands = {pool.name: hands_of(pool, pools) for pool in pools}
        self._ingress: Ingress | None = None
        self._delivering = delivering_of(home)
        self._planners = Planners()
        self._guard = threading.Lock()
        self._tick = self._loop("tick", self._step_schedulers, TICK_S)
        self._fleet_loop = self._loop("fleet", self._step_fleet, FLEET_S)
        self._loops = [self._tick, self._fleet_loop, self._loop("seal", lambda: tidy(home), TIDY_S)]
        self._loops.append(self._loop("probes", self.front.step, PROBE_S))
        self._loops.append(self._loop("webhooks", self._delivering.step, DELIVER_S))
        if (every_s := home.settings.sweep_every_s) > 0:
            self._loops.append(self._loop("sweep", lambda: sweep_files(home), every_s))

    def start(self) -> None:
        """Take the lead of every pool and begin. Raises Unavailable where a backend does not answer."""
        home = self._home
        owner = home.locks.owner(f"scheduler-{os.getpid()}")
        tidy(home)
        for pool in self.pools:
            home.broker.ensure_topics(
                [*topics_of(home.settings.topic_prefix, [pool.name]), dead_topic(home.settings.topic_prefix)]
            )
            leader = home.store.lead(pool.name, owner)
            self._schedulers[pool.name] = scheduler_of_pool(home, pool, leader, self._planners)
            self._loops += self._dispatch(pool)
        if (ingress := ingress_of(home, self.pools)) is not None:
            self._ingress = ingress
            self._loops += ingress_loops(ingress, self.alarm)
        for loop in self._loops:
            loop.start()

    def reports(self) -> list[Report]:
        """Of all workers, by name."""
        with self._guard:
            return [report for s in self._fleet.standings.values() for _, report in sorted(s.reports.items())]

    def figures(self) -> Iterator[Sample]:
        """Of all its parts."""
        for scheduler in [*self._schedulers.values()]:
            yield from scheduler_figures(scheduler)
        for pool, dispatcher in [*self._dispatchers.items()]:
            yield from dispatcher_figures(dispatcher, pool)
        yield from self._ground.figures()
        yield from fleet_figures(self._fleet)
        yield from self.front.figures()
        if self._ingress is not None:
            yield from ingress_figures(self._ingress)

    def wake(self) -> None:
        """There is something new to schedule. The fleet looks often enough by itself, unless a pool sleeps."""
        self._tick.wake()
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
        for loop in reversed(self._loops):
            loop.stop()
        for pool in self.pools:
            for name in self._ground.workers(pool.name):
                self._ground.remove(name)
        self._planners.close()
        self._delivering.close()
        return drained

    # ---- the loops ------------------------------------------------------------------------------

    def _loop(self, name: str, step: Callable[[], object], every_s: float = 0.0) -> Loop:
        return Loop(name, steady(step), self.alarm, every_s=every_s)

    def _step_schedulers(self) -> None:
        for name, scheduler in self._schedulers.items():
            scheduler.step(sum(len(self._ground.workers(pool)) for pool in self._hands[name]))

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
                self._tick.wake()

        return [
            self._loop(f"look-{pool.name}", lambda: crowd.seen(ground.rooms(self._hands[pool.name])), LOOK_S),
            self._loop(f"poll-{pool.name}", dispatcher.poll_step),
            self._loop(f"lease-{pool.name}", lease),
        ]
