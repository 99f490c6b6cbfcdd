"""The plans of `make chaos-cluster`, and how its story is told."""

import pytest

from tests.chaos_cluster.plans import FIRST_AT, LARGE_FROM, LARGE_ROWS, LAST_AT, MENU, ROWS, plan
from tests.chaos_cluster.story import longest_pauses

pytestmark = pytest.mark.unit


def test_a_seed_is_always_the_same_plan():
    assert str(plan(17)) == (
        "seed 17: 20,000 rows, any order; s3 silent after it stored for 9.7 s at 5%; "
        "broker killed for 5.5 s at 62%; topic deleted at 66%"
    )
    assert plan(17) == plan(17) != plan(18)


def test_another_size_leaves_the_faults_as_they_are():
    assert plan(17, 5000).faults == plan(17).faults
    assert (plan(17, 5000).rows, plan(17).rows, plan(LARGE_FROM).rows) == (5000, ROWS, LARGE_ROWS)


def test_neighbouring_seeds_have_every_kind_of_fault_between_them():
    assert {fault.kind for seed in range(len(MENU)) for fault in plan(seed).faults} == set(MENU)


@pytest.mark.parametrize("seed", [*range(60), LARGE_FROM, LARGE_FROM + 1, LARGE_FROM + 2])
def test_faults_strike_in_turn_within_the_job_and_last_as_long_as_their_kind_may(seed):
    faults = plan(seed).faults
    places = [fault.at for fault in faults]
    assert places == sorted(places)
    assert all(FIRST_AT <= at <= LAST_AT for at in places)
    assert all(MENU[fault.kind][0] <= fault.seconds <= MENU[fault.kind][1] for fault in faults)


def test_a_fault_is_told_the_longest_pause_that_is_its_own():
    commits = [1.0, 2.0, 5.0, 6.0, 20.0, 21.0]
    assert longest_pauses([2.5, 7.0], commits) == [2.5, 13.0]
    assert longest_pauses([2.5, 5.9], commits) == [2.5, 14.0]
    assert longest_pauses([30.0], commits) == [0.0]
    assert longest_pauses([], commits) == []
