"""Steps all jobs of a pool in one tick, with the room of the pool's workers; one leadership a pool.

Which job's task is released next is decided by `jobs.picking`. A fault of one job (an input that changed, a results
folder that cannot be written, a bug of ours that only it brings out) pauses that job and holds up no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from jobs import moves
from jobs.ending import OPEN_TASKS, OUR_FAULT, RESUMED, PauseRule, open_tasks, why_held, why_pause
from jobs.errors import DatabaseUnavailable, Deposed, NightmillError, Unavailable
from jobs.model import Job, JobState, Task, TaskState
from jobs.picking import JOBS_OF_A_RANK, PickPolicy, PickState, Waiting, due_of, pick
from jobs.ports.planning import SegmentPlanner
from jobs.release import reserve_pico
from workers.about import about
from workers.finaliser import may_finish
from workers.planning import PlanAhead
from workers.scheduler import Steps
from workers.small import SmallJobs

log = structlog.get_logger()

_QUEUED = frozenset({TaskState.QUEUED})
_WAITING = frozenset({JobState.RUNNING, JobState.PAUSED})
_FEW_ROWS = 256
_LOOK_AGAIN_S, _LONGEST_REST_S = 5.0, 300.0
"""After a fault a job is let alone for so long; twice as long each time, where no backend was to blame."""


@dataclass(slots=True, kw_only=True)
class _Desk:
    """What the scheduler knows of a job beside its record. retry_s: monotonic time before which it is let alone.
    faults: since a person last resumed it. alone: it failed at its end, so it ends beside no other.
    """

    plans: PlanAhead
    rule: PauseRule
    paused: bool = False
    ending: Future[Job] | None = None
    retry_s: float = 0.0
    faults: int = 0
    alone: bool = False


@dataclass(slots=True, kw_only=True)
class PoolScheduler(Steps):
    """`step` again and again; `workers` is how many the pool has now.

    _now, _now_s: when the tick began, by the database's clock and by the monotonic one.

    planner: plans segments in `threads`, which end jobs too: neither may hold up a tick. small: the same for jobs of
    few rows, in lists: they wait for the database, and what they write shares transactions.
    """

    planner: SegmentPlanner
    picking: PickPolicy
    pause: PauseRule
    threads: ThreadPoolExecutor
    small: SmallJobs
    _state: PickState = field(default_factory=PickState)
    _desks: dict[str, _Desk] = field(default_factory=dict)
    _now: float = 0.0
    _now_s: float = 0.0

    def step(self, workers: int) -> list[Job]:
        """One tick; the jobs that were active at its beginning. Raises Deposed when another leads the pool."""
        self._now, self._now_s = self.store.now(), self.clock.monotonic()
        jobs = self.store.pressing_jobs(self.pool, most=JOBS_OF_A_RANK, patience_s=self.picking.patience_s)
        self._attend(jobs)
        released = self.store.released(self.pool)
        self.withdraw(_unwanted([*jobs, *self._others(jobs, released)], released))
        heads = self._heads(jobs, released, workers)
        asked = [job.id for job in jobs if (job.planned or job.spec.sample) and not heads[job.id]]
        still_open = self.store.with_open_tasks(asked)
        for job in jobs:
            self._care_for(job, heads[job.id], still_open=bool(heads[job.id]) or job.id in still_open)
        self._release(jobs, heads, released, workers)
        self.relay()  # at once: what is urgent waits for nothing else
        self.store.fold()
        self.reap()
        return jobs

    # ---- all jobs -------------------------------------------------------------------------------

    def _attend(self, jobs: Sequence[Job]) -> None:
        """A desk for every active job and none for others; a person's resume is noticed here."""
        self._desks = {job.id: self._desks.get(job.id) or self._open_desk(job) for job in jobs}
        for job in jobs:
            desk = self._desks[job.id]
            if desk.paused and job.state is JobState.RUNNING:
                desk.rule, desk.retry_s, desk.faults = self._resumed(job), 0.0, 0
            desk.paused = job.state is JobState.PAUSED

    def _open_desk(self, job: Job) -> _Desk:
        small = self.small.plan if _is_small(job) else None
        plans = PlanAhead(store=self.store, planner=self.planner, threads=self.threads, small=small)
        return _Desk(plans=plans, rule=self._resumed(job) if job.reason.startswith(RESUMED) else self.pause)

    def _resumed(self, job: Job) -> PauseRule:
        """Who resumes knows what came so far; a sample that was done is behind us, one that was cut short is not."""
        behind = not self.store.tasks(job.id, OPEN_TASKS, limit=1)
        return self.pause.evolve(seen=job.usage, after_sample=not behind)

    def _heads(self, jobs: Sequence[Job], released: Sequence[Task], workers: int) -> dict[str, list[Task]]:
        """The next queued tasks of each job: many where the rank may be released and the job is first in it; else one,
        which planning asks for.
        """
        held = _by_rank(released)
        firsts: dict[int, Job] = {}
        for job in sorted(jobs, key=lambda job: (due_of(job, self.picking), job.id)):
            if job.state is JobState.RUNNING:
                firsts.setdefault(job.priority.rank, job)
        most = {}
        for rank, job in firsts.items():
            sizes = held.get(rank, [])
            if not self.policy.release.enough(len(sizes), sum(sizes), workers):
                most[job.id] = self.policy.release.batch
        heads = self.store.heads([job.id for job in jobs if job.id not in most])
        found = {job.id: [heads[job.id]] if job.id in heads else [] for job in jobs}
        return found | {name: self.store.tasks(name, _QUEUED, limit=limit) for name, limit in most.items()}

    def _others(self, jobs: Sequence[Job], released: Sequence[Task]) -> list[Job]:
        """Jobs beyond those in view that have released tasks, because they were in view before they were paused."""
        known = {job.id for job in jobs}
        return [self.store.job(name) for name in sorted({task.job for task in released} - known)]

    def _release(
        self, jobs: Sequence[Job], heads: Mapping[str, list[Task]], released: Sequence[Task], workers: int
    ) -> None:
        by_id = {job.id: job for job in jobs if job.state is JobState.RUNNING and heads[job.id]}
        waiting = [
            Waiting(
                job=job.id,
                rank=job.priority.rank,
                due=due_of(job, self.picking),
                rows=tuple(task.rows for task in heads[job.id]),
            )
            for job in by_id.values()
        ]
        picks, state = pick(waiting, _by_rank(released), self._state, self.picking, workers)
        if not picks:
            return
        if (now := self.store.leader(self.pool)).epoch != self.leader.epoch:
            raise Deposed(scope=self.pool, owner=now.owner)
        taken: Counter[str] = Counter()
        made: list[tuple[Job, Task]] = []
        for name in picks:
            made.append((by_id[name], heads[name][taken[name]]))
            taken[name] += 1
        self._make(made)
        self._state = state

    def _make(self, made: Sequence[tuple[Job, Task]]) -> None:
        """All in one transaction; where that fails, each job's in its own, to learn whose it was."""
        try:
            self.store.make([self._release_of(job, task) for job, task in made])
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  # as in `_care`
            jobs = {job.id: job for job, _ in made}
            for name, job in jobs.items():
                if len(jobs) == 1:
                    self._hold_up(job, self._desks[name], error)
                else:
                    self._make([one for one in made if one[0].id == name])

    def _release_of(self, job: Job, task: Task) -> moves.Move:
        leader = (self.leader.scope, self.leader.epoch)
        now = task.evolve(priority=job.priority)
        return moves.release(now, ticket=self.ids.token(), reserve_pico=reserve_pico(job, now), leader=leader)

    # ---- one job --------------------------------------------------------------------------------

    def _care_for(self, job: Job, queued: Sequence[Task], *, still_open: bool) -> None:
        desk = self._desks[job.id]
        if self._now_s < desk.retry_s:
            return
        with about(job):
            self._care(job, desk, queued, still_open=still_open)

    def _care(self, job: Job, desk: _Desk, queued: Sequence[Task], *, still_open: bool) -> None:
        try:
            self._plan(job, queued)
            if job.state.ending:
                self.sweep(job)
            self._judge(job, still_open=still_open)
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # the job's edge: what only one job brings out ends no other's work
            self._hold_up(job, desk, error)

    def _hold_up(self, job: Job, desk: _Desk, error: BaseException) -> None:
        """Pause the job where a person has to act, and let it alone for a while. Raises what is no fault of a job."""
        if not isinstance(error, Exception):
            raise error
        if (reason := why_held(error)) is not None:
            desk.faults += 1
        rest_s = _LOOK_AGAIN_S * 2.0 ** min(10, max(0, desk.faults - 1))
        desk.retry_s = self.clock.monotonic() + min(_LONGEST_REST_S, rest_s)
        if isinstance(error, NightmillError) and reason != OUR_FAULT:
            log.warning("job_held_up", reason=error.sentence)
        else:
            log.error("job_held_up", reason=repr(error), exc_info=error)
        if reason is not None:
            self.set_state(job, JobState.PAUSED, reason)

    def _plan(self, job: Job, queued: Sequence[Task]) -> None:
        desk = self._desks[job.id]
        if job.spec.sample and job.next_segment == 1 and desk.rule.after_sample and not job.state.ending:
            return
        desk.plans.step(job, queued[0] if queued else None, self.policy.segments_ahead)

    def _judge(self, job: Job, *, still_open: bool) -> None:
        # Counting a million tasks takes a quarter of a second: whether one is open is all that must be known.
        counts = {TaskState.QUEUED: 1} if still_open else {}
        if may_finish(job, open_tasks(counts)):
            self._finish(job)
            return
        if job.state not in _WAITING:
            return
        if job.deadline_at is not None and self._now > job.deadline_at:  # whoever asked waits for an end
            self.set_state(job, JobState.EXPIRING, "its deadline passed", expect=_WAITING)
        elif job.state is JobState.RUNNING and (reason := why_pause(job, counts, self._desks[job.id].rule)):
            self.set_state(job, JobState.PAUSED, reason)

    def _finish(self, job: Job) -> None:
        """In a thread: publishing thousands of parts takes its time. It is told what became of it in a later tick."""
        desk = self._desks[job.id]
        if desk.ending is None:
            desk.ending = self._end(job, alone=desk.alone)
        elif desk.ending.done():
            ended, desk.ending = desk.ending, None
            if (error := ended.exception()) is not None:
                desk.alone = not isinstance(error, DatabaseUnavailable)
                self._hold_up(job, desk, error)

    def _end(self, job: Job, *, alone: bool) -> Future[Job]:
        if _is_small(job):
            return self.small.finish(job, alone=alone)
        return self.threads.submit(self.finaliser.finish, job)


def _is_small(job: Job) -> bool:
    return 0 < job.total_rows <= _FEW_ROWS


def _unwanted(jobs: Sequence[Job], released: Sequence[Task]) -> list[Task]:
    """Released tasks of paused jobs, and those whose job has another priority by now."""
    by_id = {job.id: job for job in jobs}
    return [
        task
        for task in released
        if (job := by_id.get(task.job)) is not None
        and (job.state is JobState.PAUSED or (job.state is JobState.RUNNING and task.priority is not job.priority))
    ]


def _by_rank(released: Sequence[Task]) -> dict[int, list[int]]:
    ranks: dict[int, list[int]] = {}
    for task in released:
        ranks.setdefault(task.priority.rank, []).append(task.rows)
    return ranks
