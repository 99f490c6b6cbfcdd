"""Ends a job once all its tasks are at their end: void rows are written, parts published, the record closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import structlog

from jobs.batch_files import is_small
from jobs.ending import final_state
from jobs.errors import Refused, Unavailable
from jobs.model import Job, JobState, Outcome, Part, Task, TaskState, Usage, VoidReason
from jobs.ports.planning import Final, Publisher
from jobs.ports.rows import PartSink
from jobs.ports.store import End, Store
from workers.about import about

log = structlog.get_logger()

_VOID_ROWS = {
    VoidReason.CANCELLED: (Outcome.CANCELLED, None, None),
    VoidReason.EXPIRED: (Outcome.EXPIRED, None, None),
    VoidReason.DEAD: (Outcome.ERROR, "engine_died", "the engine died each time it had this row alone"),
}
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """How a job is about to end. void: what its void tasks add."""

    job: Job
    parts: Iterator[Part]
    final: Final
    void: Usage

    def asked(self, manifest: str) -> End:
        final = self.final
        return End(self.job.id, self.job.version, final.state, final.reason, manifest, self.void)


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
            return self.finish_all([job])[0]

    def finish_all(self, jobs: Sequence[Job]) -> list[Job]:
        """As `finish` for each; what they write shares transactions. Raises the first error: then begin again. Of a job
        whose record is closed already only `_SUCCESS` may be missing.
        """
        names = [job.id for job in jobs]
        while self.store.unfolded(names):
            self.store.fold()
        now = self._named(names)
        if any(job.state.terminal for job in now):
            self.seal_all([job for job in self.store.unsealed() if job.id in names])
        going = [job for job in now if not job.state.terminal]
        small = self.store.parts_of([job.id for job in going if is_small(job)])
        ends = [self._ending(job, small.get(job.id)) for job in going]
        manifests = self.publisher.publish_all([(end.job, end.parts, end.final) for end in ends])
        answers = self.store.finalise_all([end.asked(uri) for end, uri in zip(ends, manifests, strict=True)])
        closed = [end for end, answer in zip(ends, answers, strict=True) if answer]
        for end in closed:
            self.voided.update(end.void.outcomes)
        self.seal_all([end.job for end in closed])
        for end in closed:
            with about(end.job):
                log.info("job_final", state=end.final.state, rows=end.final.usage.rows)
        return self._named(names)

    def _named(self, names: Sequence[str]) -> list[Job]:
        found = self.store.jobs_named(names)
        return [found[name] for name in names]

    def _ending(self, job: Job, parts: list[Part] | None) -> _Ending:
        """parts: those that count, where they are at hand."""
        void_parts, void = self._void_rows(job)
        usage = job.usage.plus(void)
        state, reason = final_state(job, usage)
        final = Final(state=state, reason=reason, usage=usage, amount_pico=job.amount_pico)
        counted = self.store.parts(job.id) if parts is None else parts
        return _Ending(job=job, parts=chain(counted, void_parts), final=final, void=void)

    def seal(self, job: Job) -> None:
        """`_SUCCESS`; repeated by whoever finds a job that ended without it."""
        self.seal_all([job])

    def seal_all(self, jobs: Sequence[Job]) -> None:
        """As `seal` for each."""
        self.publisher.seal_all(jobs)
        self.store.set_sealed([job.id for job in jobs])

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

    def _void_tasks(self, job: Job) -> Sequence[Task]:
        """None where every row is in a part that counts."""
        if job.usage.rows == job.total_rows:
            return ()
        return self.store.tasks(job.id, frozenset({TaskState.VOID}), limit=10_000_000)


def is_over(job: Job) -> bool:
    """Nothing is left to do for it."""
    return job.state.terminal


def may_finish(job: Job, open_tasks: int) -> bool:
    """Planned, and no task is open; a paused job too, since there is nothing left to wait for."""
    return job.planned and open_tasks == 0 and job.state is not JobState.FAILED and not job.state.terminal
