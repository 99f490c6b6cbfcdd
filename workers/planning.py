"""Plans a job's segments a little ahead of their release, in threads: a tick waits for no file.

A large job is planned by itself; small ones in lists, whose tasks are stored in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import structlog

from jobs.errors import DatabaseUnavailable
from jobs.model import InputFile, Job, JobState, Task
from jobs.ports.planning import PlannedSegment, SegmentPlanner
from jobs.ports.store import Store
from workers.about import about

log = structlog.get_logger()


class Begin(Protocol):
    """Plans and stores a job's next segment, in some thread. alone: not with those of other jobs."""

    def __call__(self, job: Job, *, alone: bool) -> Future[None]: ...


@dataclass(slots=True, kw_only=True)
class PlanAhead:
    """Begins one segment at a time. Once closed it stores no segment and begins none: a last step of the scheduler may
    follow.

    small: does the work for a small job, together with others until that fails; None for a large one, which has
    `threads`.
    """

    store: Store
    planner: SegmentPlanner
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="plan"))
    small: Begin | None = None
    _under_way: Future[None] | None = None
    _failed: bool = False
    _closed: bool = False
    _files: dict[str, list[InputFile]] = field(default_factory=dict)

    def step(self, job: Job, head: Task | None, ahead: int) -> None:
        """Begin the next segment if fewer than `ahead` are queued; not in the step that finds the last one stored,
        whose `job` may have been read before that.
        """
        if self._closed:
            return
        if self._under_way is not None:
            if self._under_way.done():
                planned, self._under_way = self._under_way, None  # a plan that failed is made anew, not raised for ever
                self._failed = not isinstance(planned.exception(), DatabaseUnavailable | None)
                planned.result()
            return
        if self._wanted(job, head, ahead):
            self._under_way = self._begin(job)

    def wait(self) -> None:
        """Until the segment under way is stored; for a caller that has nothing else to do."""
        if self._under_way is not None:
            wait([self._under_way])

    def close(self) -> None:
        self._closed = True
        self.threads.shutdown(wait=True, cancel_futures=True)

    def _begin(self, job: Job) -> Future[None]:
        if self.small is None:
            return self.threads.submit(self._plan, job)
        return self.small(job, alone=self._failed)

    @staticmethod
    def _wanted(job: Job, head: Task | None, ahead: int) -> bool:
        if job.planned or job.state is JobState.PAUSED:
            return False
        return job.state.ending or head is None or job.next_segment - head.segment < ahead

    def _plan(self, job: Job) -> None:
        with about(job):
            if job.id not in self._files:
                self._files[job.id] = self.store.files(job.id)
            planned = plan_next(self.store.speed, self.planner, job, self._files[job.id])
            if not self._closed:
                store_all(self.store, [(job, planned)])


def plan_small(store: Store, planner: SegmentPlanner, jobs: Sequence[Job]) -> list[None]:
    """The next segment of each. Raises the first error: then nothing is stored, and each is to be tried alone."""
    planned, speed, files = [], cache(store.speed), store.files_of([job.id for job in jobs])
    for job in jobs:
        with about(job):
            planned.append((job, plan_next(speed, planner, job, files[job.id])))
    store_all(store, planned)
    return [None] * len(jobs)


def plan_next(
    speed_of: Callable[[str], tuple[float, float] | None], planner: SegmentPlanner, job: Job, files: Sequence[InputFile]
) -> PlannedSegment:
    """Not yet stored. speed_of: see `FleetStore.speed`."""
    speed = speed_of(job.spec.model)
    rows_per_s = speed[0] if speed else None
    return planner.plan(job, files, job.next_segment, ending=job.state.ending, rows_per_s=rows_per_s)


def store_all(store: Store, planned: Sequence[tuple[Job, PlannedSegment]]) -> None:
    """Whoever was faster with one of them has planned the same."""
    answers = store.plan_segments([(job.id, job.next_segment, one.tasks, one.last) for job, one in planned])
    for (job, one), made in zip(planned, answers, strict=True):
        with about(job):
            log.info("segment_planned", segment=job.next_segment, tasks=len(one.tasks), made=made)
