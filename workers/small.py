"""Jobs of few rows, planned and ended in lists, beside the tick that asks for it."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from functools import partial

from jobs.model import Job
from jobs.ports.planning import SegmentPlanner
from jobs.ports.store import Store
from workers.finaliser import Finaliser
from workers.planning import plan_small
from workers.together import Together


class SmallJobs:
    """Of one pool. threads: may be shared with others."""

    def __init__(self, *, store: Store, planner: SegmentPlanner, finaliser: Finaliser, threads: Executor) -> None:
        self._plans: Together[Job, None] = Together(partial(plan_small, store, planner), threads)
        self._ends: Together[Job, Job] = Together(finaliser.finish_all, threads)

    def plan(self, job: Job, *, alone: bool) -> Future[None]:
        """Its next segment. alone: see `Together.submit`."""
        return self._plans.submit(job, alone=alone)

    def finish(self, job: Job, *, alone: bool) -> Future[Job]:
        """All its tasks are at their end. alone: see `Together.submit`."""
        return self._ends.submit(job, alone=alone)
