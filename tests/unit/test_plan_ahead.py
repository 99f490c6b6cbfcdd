"""workers/planning.py: one segment at a time, a little ahead of what is released."""

import pytest

from jobs.model import JobState
from jobs.ports.planning import PlannedSegment
from tests.support.bench import Inline
from tests.support.store import a_store
from tests.support.values import a_job, a_task
from workers.planning import PlanAhead

pytestmark = pytest.mark.unit


class Planner:
    """A task a segment; three segments. meanwhile: what happens while it plans."""

    def __init__(self):
        self.meanwhile = lambda: None

    def plan(self, job, files, segment, *, ending, rows_per_s):
        self.meanwhile()
        return PlannedSegment(tasks=(a_task(id=f"j.{segment}", segment=segment),), last=segment == 2)


class Plans:
    """PlanAhead without its thread, and what it stored."""

    def __init__(self):
        store = a_store(a_job())
        self.stored = []
        store.files, store.speed = lambda _: [], lambda _: None
        store.plan_segments = self._store
        self.ahead = PlanAhead(store=store, planner=Planner(), threads=Inline())

    def _store(self, planned):
        self.stored += [(segment, [*tasks], last) for _, segment, tasks, last in planned]
        return [True] * len(planned)

    def step(self, head=None, **job):
        self.ahead.step(a_job(**{"planned": False, **job}), head, 2)


def test_a_segment_is_planned_and_stored_in_the_thread():
    plans = Plans()
    plans.step(next_segment=0)
    assert plans.stored == [(0, [a_task(id="j.0", segment=0)], False)]


@pytest.mark.parametrize(
    ("head", "job", "wanted"),
    [
        pytest.param(None, {"next_segment": 0}, True, id="nothing is queued"),
        pytest.param(a_task(segment=0), {"next_segment": 1}, True, id="one segment is ahead"),
        pytest.param(a_task(segment=0), {"next_segment": 2}, False, id="two segments are ahead"),
        pytest.param(None, {"next_segment": 2, "planned": True}, False, id="all is planned"),
        pytest.param(None, {"next_segment": 0, "state": JobState.PAUSED}, False, id="the job is paused"),
        pytest.param(a_task(), {"next_segment": 9, "state": JobState.CANCELLING}, True, id="an ending job is planned"),
    ],
)
def test_the_next_segment_is_planned_when(head, job, wanted):
    plans = Plans()
    plans.step(head, **job)
    assert (plans.ahead._under_way is not None) is wanted


def test_the_step_that_finds_a_segment_stored_begins_none_since_its_job_may_have_been_read_before():
    plans = Plans()
    plans.step(next_segment=0)
    plans.step(next_segment=0)
    plans.step(next_segment=1)
    assert [segment for segment, _, _ in plans.stored] == [0, 1]


def test_after_closing_nothing_is_begun_or_stored():
    plans = Plans()
    plans.ahead.planner.meanwhile = plans.ahead.close
    plans.step(next_segment=0)
    plans.step(next_segment=0)
    plans.step(next_segment=0)
    assert plans.stored == []


def test_a_plan_that_failed_is_made_anew():
    plans = Plans()
    files, plans.ahead.store.files = plans.ahead.store.files, lambda _: 1 / 0
    plans.step(next_segment=0)
    with pytest.raises(ZeroDivisionError):
        plans.step(next_segment=0)
    plans.ahead.store.files = files
    plans.step(next_segment=0)
    plans.step(next_segment=0)
    assert [segment for segment, _, _ in plans.stored] == [0]
