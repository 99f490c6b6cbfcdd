"""Plans a little ahead, releases a little ahead, publishes, sweeps, folds, and ends jobs: one `step` a tick.

It decides nothing itself: how much to plan, release and when to pause are pure rules in `jobs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from jobs import moves
from jobs.ending import PauseRule, open_tasks, why_pause
from jobs.errors import WrongState
from jobs.model import Job, JobState, Task, TaskState, Value, VoidReason
from jobs.moves import Answer
from jobs.ports.clock import Clock, Ids
from jobs.ports.queue import Queue
from jobs.ports.store import Leader, Store
from jobs.release import ReleasePolicy, how_many, reserve_pico
from workers import wire
from workers.about import about
from workers.finaliser import Finaliser, may_finish
from workers.planning import PlanAhead
from workers.reaper import Reaper
from workers.sending import send

log = structlog.get_logger()

_QUEUED = frozenset({TaskState.QUEUED})
_RELEASED = frozenset({TaskState.RELEASED})
_RUNNING = frozenset({JobState.RUNNING})
_SWEPT = _QUEUED | _RELEASED
_VOID = {JobState.CANCELLING: VoidReason.CANCELLED, JobState.EXPIRING: VoidReason.EXPIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePolicy(Value):
    """segments_ahead: planned segments with queued tasks to keep. reap_every_s: how often leases are looked at."""

    prefix: str = "nightmill"
    segments_ahead: int = 2
    reap_every_s: float = 1.0
    release: ReleasePolicy = ReleasePolicy()


@dataclass(slots=True, kw_only=True)
class Steps:
    """What schedulers of one job and of many have in common: of one pool, under one leadership."""

    store: Store
    broker: Queue
    reaper: Reaper
    finaliser: Finaliser
    clock: Clock
    ids: Ids
    leader: Leader
    pool: str
    policy: SchedulePolicy
    _reaped_s: float = 0.0

    def relay(self) -> None:
        """Publish what was released."""
        rows = self.store.pending(self.policy.release.batch, self.pool)
        if not rows:
            return
        prefix = self.policy.prefix
        places = send(self.broker, [wire.encode(prefix, r.message, self._trace(), r.released_at) for r in rows])
        self.store.published({row.id: place for row, place in zip(rows, places, strict=True)})

    def _trace(self) -> wire.Trace:
        return wire.Trace(trace_id=self.ids.token(), span_id=self.ids.token()[: wire.SPAN_CHARS])

    def withdraw(self, released: Sequence[Task]) -> None:
        """Take back what need not be leased any more."""
        if released:
            self.store.make([moves.withdraw(task) for task in released])

    def sweep(self, job: Job) -> None:
        """Void what is left of an ending job."""
        reason = _VOID[job.state]
        while open_ones := self.store.tasks(job.id, _SWEPT):
            answers = self.store.make([moves.sweep(task, reason) for task in open_ones])
            if Answer.MADE not in answers:
                return

    def reap(self) -> None:
        """Look at leases and lost messages, now and then."""
        now = self.clock.monotonic()
        if now - self._reaped_s >= self.policy.reap_every_s:
            self._reaped_s = now
            self.reaper.step(self.pool)

    def set_state(self, job: Job, to: JobState, reason: str, *, expect: frozenset[JobState] = _RUNNING) -> Job:
        """Change the state of a running job; one that is in none of the states expected any more stays as it is."""
        try:
            return self.store.set_state(job.id, expect=expect, to=to, reason=reason)
        except WrongState:
            return self.store.job(job.id)


@dataclass(slots=True, kw_only=True)
class Scheduler(Steps):
    """Of one job in a pool of its own."""

    plans: PlanAhead
    pause: PauseRule = PauseRule()

    def step(self, job_id: str) -> Job:
        """One tick for one job; the job as it stands afterwards."""
        job = self.store.job(job_id)
        if job.state.terminal:
            return job
        with about(job):
            return self._step(job)

    def _step(self, job: Job) -> Job:
        released = [task.rows for task in self.store.tasks(job.id, _RELEASED)]
        queued = self.store.tasks(job.id, _QUEUED, limit=self.policy.release.to_read(released))
        self._plan(job, queued)
        if job.state is JobState.RUNNING:
            self._release(job, queued, released)
        elif job.state is JobState.PAUSED:
            self.withdraw(self.store.tasks(job.id, _RELEASED))
        else:
            self.sweep(job)
        self.relay()
        self.reap()
        self.store.fold()
        return self._judge(self.store.job(job.id), queued=bool(queued))

    def _plan(self, job: Job, queued: list[Task]) -> None:
        if job.spec.sample and job.next_segment == 1 and self.pause.after_sample and not job.state.ending:
            return
        self.plans.step(job, queued[0] if queued else None, self.policy.segments_ahead)

    def _release(self, job: Job, queued: list[Task], released: list[int]) -> None:
        count = how_many([task.rows for task in queued], released, self.policy.release)
        if not count:
            return
        leader = (self.leader.scope, self.leader.epoch)
        self.store.make(
            [
                moves.release(task, ticket=self.ids.token(), reserve_pico=reserve_pico(job, task), leader=leader)
                for task in queued[:count]
            ]
        )

    def _judge(self, job: Job, *, queued: bool) -> Job:
        # Counting a million tasks takes a quarter of a second: while some are queued the answer is known.
        counts = {TaskState.QUEUED: 1} if queued else self.store.task_counts(job.id)
        if may_finish(job, open_tasks(counts)):
            return self.finaliser.finish(job)
        if job.state is not JobState.RUNNING:
            return job
        if job.deadline_at is not None and self.store.now() > job.deadline_at:
            return self.set_state(job, JobState.EXPIRING, "its deadline passed")
        reason = why_pause(job, counts, self.pause)
        return self.set_state(job, JobState.PAUSED, reason) if reason else job
