"""Ends a job once all its tasks are at their end: void rows are written, parts published, the record closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from jobs.ending import final_state
from jobs.errors import Refused, Unavailable
from jobs.model import Job, JobState, Outcome, Part, Task, TaskState, Usage, VoidReason
from jobs.ports.planning import Final, Publisher
from jobs.ports.rows import PartSink
from jobs.ports.store import Store
from workers.about import about

log = structlog.get_logger()

_VOID_ROWS = {
    VoidReason.CANCELLED: (Outcome.CANCELLED, None, None),
    VoidReason.EXPIRED: (Outcome.EXPIRED, None, None),
    VoidReason.DEAD: (Outcome.ERROR, "engine_died", "the engine died each time it had this row alone"),
}
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finaliser:
    """Two finalisers publish identical bytes or lose the compare-and-set. Any process may finish what one left.

    voided: rows of void tasks that it wrote and counted, by outcome.
    """

    store: Store
    sink: PartSink
    publisher: Publisher
    voided: Counter[str] = field(default_factory=Counter)

    def finish(self, job: Job) -> Job:
        """Publish, then close the record, then `_SUCCESS`. The job must be planned with every task at its end."""
        with about(job):
            return self._finish(job)

    def _finish(self, job: Job) -> Job:
        while self.store.unfolded(job.id):
            self.store.fold()
        job = self.store.job(job.id)
        void_parts, void = self._void_rows(job)
        usage = job.usage.plus(void)
        state, reason = final_state(job, usage)
        final = Final(state=state, reason=reason, usage=usage, amount_pico=job.amount_pico)
        manifest = self.publisher.publish(job, _both(self.store.parts(job.id), void_parts), final)
        if self.store.finalise(job.id, version=job.version, to=state, reason=reason, manifest=manifest, void=void):
            self.voided.update(void.outcomes)
            self.seal(job)
            log.info("job_final", state=state, rows=usage.rows)
        return self.store.job(job.id)

    def seal(self, job: Job) -> None:
        """`_SUCCESS`; repeated by whoever finds a job that ended without it."""
        self.publisher.seal(job)
        self.store.set_sealed(job.id)

    def seal_left_over(self) -> None:
        """Jobs whose process died between closing the record and `_SUCCESS`.

        Every command does this: a folder that cannot be written to now must not keep the others from their work.
        """
        for job in self.store.unsealed():
            with about(job):
                try:
                    self.seal(job)
                except (Refused, Unavailable) as error:
                    log.warning("not_sealed", reason=error.sentence)

    def _void_rows(self, job: Job) -> tuple[list[Part], Usage]:
        parts, usage = [], Usage()
        for task in self._void_tasks(job):
            assert task.void_reason is not None
            outcome, code, message = _VOID_ROWS[task.void_reason]
            settled = self.sink.write_void(job, task, outcome, code, message)
            if settled.part is not None:
                parts.append(settled.part)
                usage = usage.plus(settled.usage)
        return parts, usage

    def _void_tasks(self, job: Job) -> Iterator[Task]:
        yield from self.store.tasks(job.id, frozenset({TaskState.VOID}), limit=10_000_000)


def _both(first: Iterator[Part], second: list[Part]) -> Iterator[Part]:
    yield from first
    yield from second


def is_over(job: Job) -> bool:
    """Nothing is left to do for it."""
    return job.state.terminal


def may_finish(job: Job, open_tasks: int) -> bool:
    """Planned, and no task is open; a paused job too, since there is nothing left to wait for."""
    return job.planned and open_tasks == 0 and job.state is not JobState.FAILED and not job.state.terminal
