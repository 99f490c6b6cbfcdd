"""Which files a sweeper may delete: each rule, and that nothing which may still count is ever among them."""

import pytest

from jobs.model import JobState, TaskState
from jobs.sweeping import Dead, LeaseEnd, Leftover, dead
from tests.factories import a_job

pytestmark = pytest.mark.unit

HOUR = 3600.0
DIED = 1000.0
URI = "/out/job-a/_parts/t-old.parquet"


def swept(*, lease=None, file=None, sealed=False, now=DIED + HOUR, older_than_s=HOUR, job=None):
    file = file or Leftover(uri=URI, size=7, task="t", token="old")
    leases = {} if lease is None else {lease.task: lease}
    found = list(dead([file], leases, job=job or a_job(), sealed=sealed, now=now, older_than_s=older_than_s))
    return found[0] if found else None


def a_lease(state=TaskState.LEASED, token="new", **changes):
    return LeaseEnd(task="t", state=state, token=token, since=DIED, part=None).evolve(**changes)


@pytest.mark.parametrize("state", TaskState)
@pytest.mark.parametrize("sealed", [False, True])
def test_the_part_of_a_token_that_another_replaced_goes_once_it_is_old(state, sealed):
    lease = a_lease(state, token="new" if state is TaskState.LEASED or state.terminal else None)
    assert swept(lease=lease, sealed=sealed) == Dead(
        uri=URI, size=7, job="job-a", since=DIED, why="its lease is over, and it is not on the manifest"
    )
    assert swept(lease=lease, sealed=sealed, now=DIED + HOUR - 1) is None


def test_the_part_of_a_living_lease_stays_however_old():
    assert swept(lease=a_lease(token="old"), now=DIED + 1000 * HOUR, older_than_s=0) is None


@pytest.mark.parametrize("state", [TaskState.DONE, TaskState.SPLIT])
def test_a_part_on_the_manifest_stays(state):
    lease = a_lease(state, token="old", part=URI)
    assert swept(lease=lease, sealed=True, older_than_s=0, now=DIED + 1000 * HOUR) is None
    assert swept(lease=lease.evolve(part="/out/job-a/_parts/t-new.parquet")) is not None


def test_the_part_of_a_lease_that_ended_without_one_goes():
    assert swept(lease=a_lease(TaskState.VOID, token="old")) is not None


def test_what_the_database_does_not_know_stays():
    assert swept(lease=None, sealed=True, older_than_s=0) is None
    assert swept(lease=a_lease(TaskState.QUEUED, token=None, since=None), older_than_s=0) is None


def test_void_rows_and_unfinished_files_wait_for_the_end_of_the_job():
    ended = a_job(state=JobState.CANCELLED, finished_at=DIED)
    void = Leftover(uri="/out/job-a/_parts/t-void.parquet", size=7, task="t")
    unfinished = Leftover(uri="/out/job-a/_parts/.t.00.tmp", size=7)
    lease = a_lease(TaskState.VOID, token=None)
    for file in (void, unfinished):
        assert swept(file=file, lease=lease, job=ended) is None
        assert swept(file=file, lease=lease, job=ended, sealed=True).since == DIED
        assert swept(file=file, lease=lease, job=ended, sealed=True, now=DIED + 1) is None
