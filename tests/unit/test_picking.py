"""jobs/picking.py: examples; what holds always is in tests/property/test_picking.py."""

import pytest

from jobs.picking import PickPolicy, PickState, Waiting, due_of, pick
from jobs.release import ReleasePolicy
from tests.support.values import a_job

pytestmark = pytest.mark.unit

POLICY = PickPolicy(lower_share=0.25, release=ReleasePolicy(ahead_tasks=2, ahead_rows=10))


def a_waiting(job, rank=2, due=0.0, rows=(5,) * 9):
    return Waiting(job=job, rank=rank, due=due, rows=rows)


def picked(waiting, released=None, *, workers=1, state=None):
    return pick(waiting, released or {}, state or PickState(), POLICY, workers)[0]


def test_the_more_urgent_job_goes_first():
    assert picked([a_waiting("slow", rank=3), a_waiting("fast", rank=0)]) == ["fast", "fast"]


def test_inside_a_rank_the_earliest_due_goes_first():
    assert picked([a_waiting("b", due=2.0), a_waiting("a", due=1.0, rows=(5,))]) == ["a", "b"]


def test_what_is_released_of_a_lower_rank_does_not_hold_up_a_higher_one():
    assert picked([a_waiting("fast", rank=0)], {3: [100, 100]}) == ["fast", "fast"]


def test_what_is_released_of_a_higher_rank_holds_up_a_lower_one():
    assert picked([a_waiting("slow", rank=3)], {0: [100, 100]}) == []


def test_the_reserved_share_is_released_though_the_higher_rank_fills_the_stretch():
    owed = PickState(debt=1.0)
    waiting = [a_waiting("slow", rank=3), a_waiting("fast", rank=0)]
    assert picked(waiting, {0: [100, 100]}, state=owed) == ["slow"]


def test_without_workers_nothing_is_released():
    assert picked([a_waiting("a")], workers=0) == []


def test_the_stretch_grows_with_the_workers():
    assert len(picked([a_waiting("a")], workers=3)) == 6


def test_a_job_is_due_at_its_deadline_or_when_patience_ends():
    policy = PickPolicy(patience_s=100.0)
    assert due_of(a_job(created_at=5.0), policy) == 105.0
    assert due_of(a_job(created_at=5.0, deadline_at=50.0), policy) == 50.0
    assert due_of(a_job(created_at=5.0, deadline_at=500.0), policy) == 105.0
