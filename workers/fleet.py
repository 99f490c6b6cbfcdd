"""Keeps every pool at the workers it should have: starts, replaces, drains, rolls. One `step` a second.

It holds no truth: which workers there are is asked of the ground (Ray) each time, so that whoever supervises next goes
on from what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from jobs.model import Job, JobState, Value
from jobs.picking import JOBS_OF_A_RANK, PickPolicy
from jobs.pools import Pool
from jobs.ports.clock import Clock, Ids
from jobs.ports.store import Store
from jobs.scaling import Demand, ScalePolicy, ScaleState, backoff_s, desired
from workers.reaper import end_lease
from workers.reports import Phase, Report

log = structlog.get_logger()

START_S = 30.0
"""What a worker is taken to need until it runs, before one has shown it: vLLM takes 20 to 45 s on a small model."""


class Ground(Protocol):
    """Where workers live."""

    def workers(self, pool: str) -> list[str]:
        """Names of those that are not dead."""
        ...

    def reports(self, names: Sequence[str]) -> Mapping[str, Report]:
        """Of those that answer within a moment."""
        ...

    def start(self, pool: Pool, name: str, avoid: frozenset[str] = frozenset()) -> None:
        """Ask for a place and a worker in it; returns at once. avoid: nodes on which it must not be."""
        ...

    def drain(self, name: str) -> None: ...

    def remove(self, name: str) -> None:
        """End what is left of a worker, and give its place back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy(Value):
    """longest_backoff_s: pause before a replacement, at most. silent_s: who answered once and then not for so long is
    ended. proven_s: a worker that ran for so long forgives the failures before it.
    """

    scale: ScalePolicy = ScalePolicy()
    longest_backoff_s: float = 60.0
    silent_s: float = 60.0
    proven_s: float = 30.0


@dataclass(slots=True, kw_only=True)
class Standing:
    """What is known of one pool. heard_s: when each worker last answered, monotonic. to_roll: workers to be replaced.

    removed: workers that were ended and are still to be seen for a moment. avoided: nodes that each was to avoid.
    ends: workers that ended, by cause. asked, short: requests since the last look, see `Demand`. start_s: how long the
    last worker took until it ran; began_s: when those that do not run yet were started, monotonic.
    """

    reports: dict[str, Report] = field(default_factory=dict)
    heard_s: dict[str, float] = field(default_factory=dict)
    scale: ScaleState = field(default_factory=ScaleState)
    failures: int = 0
    not_before_s: float = 0.0
    to_roll: list[str] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    avoided: dict[str, frozenset[str]] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    wanted: int = 0
    asked: bool = False
    short: bool = False
    start_s: float = START_S
    began_s: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Fleet:
    """`closing`: see `close`."""

    pools: Sequence[Pool]
    ground: Ground
    store: Store
    clock: Clock
    ids: Ids
    policy: FleetPolicy
    closing: bool = False
    standings: dict[str, Standing] = field(default_factory=dict)

    def step(self) -> None:
        for pool in self.pools:
            self._step(pool, self.standings.setdefault(pool.name, Standing()))

    def drain(self, name: str) -> bool:
        """Whether there is such a worker. Another takes its place if its pool needs one."""
        if name not in {known for pool in self.pools for known in self.ground.workers(pool.name)}:
            return False
        self.ground.drain(name)
        return True

    def roll(self, pool: str) -> int:
        """Replace all workers of a pool, one after the other; how many."""
        standing = self.standings.setdefault(pool, Standing())
        standing.to_roll = self.ground.workers(pool)
        return len(standing.to_roll)

    def asked(self, pool: str, *, short: bool) -> float:
        """Requests come to a pool. short: some found no room, or no worker; seconds until the next worker may run."""
        standing = self.standings.setdefault(pool, Standing())
        standing.asked = True
        standing.short = standing.short or short
        now = self.clock.monotonic()
        begun = min(list(standing.began_s.values()), default=max(now, standing.not_before_s))
        return max(0.0, begun + standing.start_s - now)

    def close(self) -> None:
        """From now on every pool goes to zero; nothing is lost, the rest waits in the database."""
        self.closing = True

    @property
    def empty(self) -> bool:
        return not any(self.ground.workers(pool.name) for pool in self.pools)

    # ---- one pool -------------------------------------------------------------------------------

    def _step(self, pool: Pool, standing: Standing) -> None:
        seen = self.ground.workers(pool.name)
        standing.removed &= set(seen)
        there = [name for name in seen if name not in standing.removed]
        self._hear(pool, standing, there)
        for name in [name for name in standing.reports if name not in there]:
            self._died(standing, name)
        for name in [name for name in there if self._is_over(standing, name)]:
            self._let_go(standing, name)
            there.remove(name)
        for name in [name for name in there if self._waits_for_nothing(standing, name)]:
            self._end(standing, name, "stopped")
            there.remove(name)
        staying = [name for name in there if not standing.reports[name].leaving]
        standing.wanted = self._wanted(pool, standing, len(staying))
        self._roll(standing, staying)
        self._meet(pool, standing, staying)

    def _hear(self, pool: Pool, standing: Standing, there: Sequence[str]) -> None:
        now = self.clock.monotonic()
        for name, report in self.ground.reports(there).items():
            standing.reports[name] = report
            standing.heard_s[name] = now
            if report.uptime_s > self.policy.proven_s:
                standing.failures = 0
            if report.phase is Phase.RUNNING and (began := standing.began_s.pop(name, None)) is not None:
                standing.start_s = now - began
        for name in there:
            standing.reports.setdefault(name, Report(name=name, pool=pool.name, phase=Phase.PENDING))

    def _died(self, standing: Standing, name: str) -> None:
        report = standing.reports[name]
        log.log(20 if report.leaving else 40, "worker_gone", worker=name, owner=report.owner, phase=report.phase)
        standing.ends["drained" if report.leaving else "died"] += 1
        self._end(standing, name, "stopped" if report.leaving else "worker_died")
        if not report.leaving:
            self._count_failure(standing)

    def _is_over(self, standing: Standing, name: str) -> bool:
        heard = standing.heard_s.get(name)
        silent = heard is not None and self.clock.monotonic() - heard > self.policy.silent_s
        report = standing.reports[name]
        holds_for_nobody = self.closing and report.going and not report.open_tasks
        return silent or report.over or holds_for_nobody

    def _waits_for_nothing(self, standing: Standing, name: str) -> bool:
        """It is to avoid a node that is there to stay after all; another one need not."""
        pending = standing.reports[name].phase is Phase.PENDING
        return pending and bool(standing.avoided.get(name, frozenset()) - self._going())

    def _going(self) -> frozenset[str]:
        """Nodes that are to be taken away, as their workers say."""
        reports = [report for standing in self.standings.values() for report in standing.reports.values()]
        return frozenset(report.node for report in reports if report.going and report.node)

    def _let_go(self, standing: Standing, name: str) -> None:
        """Of a worker that is drained, failed, or does not answer any more."""
        report = standing.reports[name]
        failed = report.phase is not Phase.DRAINED
        log.log(30 if failed else 20, "worker_removed", worker=name, phase=report.phase, reason=report.reason)
        standing.ends[{Phase.DRAINED: "drained", Phase.FAILED: "failed"}.get(report.phase, "silent")] += 1
        self._end(standing, name, "worker_died" if failed else "stopped")
        if failed:
            self._count_failure(standing)

    def _end(self, standing: Standing, name: str, cause: str) -> None:
        """What it held is free at once. A process that lives on after all finds its tokens dead."""
        self.ground.remove(name)
        owner = standing.reports[name].owner
        for task, usage in self.store.leased_by(owner) if owner else []:
            end_lease(self.store, task, usage, cause)
        standing.removed.add(name)
        standing.reports.pop(name, None)
        standing.heard_s.pop(name, None)
        standing.avoided.pop(name, None)
        standing.began_s.pop(name, None)
        if name in standing.to_roll:
            standing.to_roll.remove(name)

    def _count_failure(self, standing: Standing) -> None:
        standing.failures += 1
        standing.not_before_s = self.clock.monotonic() + backoff_s(standing.failures, self.policy.longest_backoff_s)

    def _wanted(self, pool: Pool, standing: Standing, staying: int) -> int:
        if self.closing:
            return 0
        pressing = self.store.pressing_jobs(pool.name, most=JOBS_OF_A_RANK, patience_s=PickPolicy().patience_s)
        running = [job for job in pressing if _needs_workers(job)]
        speed = self.store.speed(pool.model)
        demand = Demand(
            jobs=len(running),
            rows_left=sum(max(0, job.total_rows - job.usage.rows) for job in running),
            workers=staying,
            rows_per_s=speed[0] if speed else None,
            asked=standing.asked,
            short=standing.short and not standing.began_s,
        )
        standing.asked = standing.short = False
        count, standing.scale = desired(demand, pool, standing.scale, self.policy.scale, self.clock.monotonic())
        return count

    def _roll(self, standing: Standing, staying: Sequence[str]) -> None:
        """The next one, once all others run."""
        phases = [standing.reports[name].phase for name in standing.reports]
        if standing.to_roll and all(phase is Phase.RUNNING for phase in phases) and len(staying) >= standing.wanted:
            self._drain(standing, standing.to_roll[0])

    def _meet(self, pool: Pool, standing: Standing, staying: Sequence[str]) -> None:
        """Start what is missing, drain what is too much: the emptiest first."""
        if self.clock.monotonic() >= standing.not_before_s:
            for _ in range(standing.wanted - len(staying)):
                name = f"{pool.name}-{self.ids.token()[:6]}"
                log.info("worker_starts", worker=name, pool=pool.name, wanted=standing.wanted)
                standing.avoided[name] = self._going()
                standing.began_s[name] = self.clock.monotonic()
                self.ground.start(pool, name, standing.avoided[name])
        surplus = sorted(staying, key=lambda name: (standing.reports[name].open_tasks, name))
        for name in surplus[: max(0, len(staying) - standing.wanted)]:
            self._drain(standing, name)

    def _drain(self, standing: Standing, name: str) -> None:
        log.info("worker_to_drain", worker=name)
        self.ground.drain(name)
        standing.reports[name] = standing.reports[name].evolve(phase=Phase.DRAINING)


def _needs_workers(job: Job) -> bool:
    return job.state is JobState.RUNNING


def worker_lines(standings: Mapping[str, Standing]) -> list[Report]:
    """The last report of every worker, by name."""
    return [standing.reports[name] for standing in standings.values() for name in sorted(standing.reports)]
