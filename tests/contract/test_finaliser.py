"""workers/finaliser.py over every database: rows that never ran are counted by whoever closed the job."""

import pytest

from jobs import moves
from jobs.errors import Unavailable
from jobs.model import JobState, Outcome, VoidReason
from tests.factories import Planned
from tests.support.rows import MemorySink
from workers.finaliser import Finaliser

pytestmark = pytest.mark.contract


class Nowhere:
    """A publisher that publishes nothing. faults: what the next seals raise; sealed: jobs."""

    def __init__(self, *faults):
        self.faults, self.sealed = [*faults], []

    def publish_all(self, ends):
        return ["manifest" for _, parts, _ in ends if list(parts) or True]

    def seal_all(self, jobs):
        if jobs and self.faults:
            raise self.faults.pop()
        self.sealed += [job.id for job in jobs]


def test_void_rows_are_counted_once_by_the_one_who_closed_the_job(store):
    p = Planned(store, tasks=2, total_rows=20)
    p.done(0)
    store.set_state(p.job.id, expect=frozenset({JobState.RUNNING}), to=JobState.CANCELLING)
    store.make([moves.sweep(p.task(1), VoidReason.CANCELLED)])
    first, second = (Finaliser(store=store, sink=MemorySink(), publisher=Nowhere()) for _ in range(2))
    job = store.job(p.job.id)
    assert [one.finish(job).state for one in (first, second)] == [JobState.CANCELLED] * 2
    assert (dict(first.voided), dict(second.voided)) == ({Outcome.CANCELLED: 10}, {})


def test_jobs_whose_records_were_closed_and_that_could_not_be_sealed_in_a_list_are_sealed_one_by_one(store):
    for name in ("job-a", "job-b"):
        p = Planned(store, job_id=name, tasks=1)
        store.set_state(name, expect=frozenset({JobState.RUNNING}), to=JobState.CANCELLING)
        store.make([moves.sweep(p.task(0), VoidReason.CANCELLED)])
    sink, publisher = MemorySink(), Nowhere(Unavailable(reason="gone"))
    finaliser = Finaliser(store=store, sink=sink, publisher=publisher)
    jobs = [store.job(name) for name in ("job-a", "job-b")]
    with pytest.raises(Unavailable):
        finaliser.finish_all(jobs)
    sink.parts.clear()
    for job in jobs:
        finaliser.finish(job)
    assert (publisher.sealed, store.unsealed(), sink.parts) == (["job-a", "job-b"], [], {})
