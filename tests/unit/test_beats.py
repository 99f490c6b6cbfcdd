"""workers/beats.py: what a beat brings and what it learns."""

import pytest

from jobs.errors import StorageFull
from jobs.model import Usage
from jobs.ports.store import Progress
from tests.support.bench import a_bench
from tests.support.values import a_task, span
from workers.beats import Beat

pytestmark = pytest.mark.unit


@pytest.fixture
def bench():
    made = a_bench(a_task(id="j.0", ranges=span(0, 30)), per_poll=4)
    made.lease("j.0")
    made.step()
    return made


def beat_of(bench):
    return Beat(store=bench.store, worker=bench.worker, owner="w")


def test_a_beat_brings_what_each_lease_has_spent(bench):
    beat_of(bench).step()
    spent = Usage(rows=4, input_tokens=24, cached_tokens=16, output_tokens=20)
    assert bench.worker.progress() == [Progress(token="token-1", usage=spent)]
    assert bench.store.progress == {"token-1": spent}


def test_a_lease_that_is_not_in_the_answer_is_given_up(bench):
    bench.store.take_lease_away("j.0")
    beat_of(bench).step()
    bench.step(2)
    assert (bench.worker.progress(), bench.worker.tally.lost) == ([], 1)


def test_a_beat_that_the_database_does_not_answer_gives_nothing_up(bench):
    bench.store.away = 1
    beat_of(bench).step()
    bench.step()
    assert (len(bench.worker.progress()), bench.worker.tally.lost) == (1, 0)


def test_a_full_disk_is_not_passed_over(bench):
    def full(*_):
        raise StorageFull(where="/data")

    bench.store.beat = full
    with pytest.raises(StorageFull):
        beat_of(bench).step()


def test_a_worker_without_work_asks_nothing():
    idle = a_bench()
    beat_of(idle).step()
    assert idle.store.calls == 0
