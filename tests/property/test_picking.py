"""jobs/picking.py: strict rank with a reserved share, and nothing starves."""

from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.picking import PickPolicy, PickState, Waiting, due_of, pick
from jobs.release import ReleasePolicy
from tests.support.values import a_job

pytestmark = pytest.mark.property

ENDLESS = (1,) * 1000
shares = st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.34, 0.5])
ranks = st.sets(st.integers(0, 3), min_size=2)
one_by_one = ReleasePolicy(ahead_tasks=1, ahead_rows=1, batch=1)


def a_waiting(rank, job=None, due=0.0, rows=ENDLESS):
    return Waiting(job=job or f"rank-{rank}", rank=rank, due=due, rows=rows)


def sequence(waiting, policy, length):
    """What is picked where each release is leased before the next."""
    state, picked = PickState(), []
    for _ in range(length):
        picks, state = pick(waiting, {}, state, policy, workers=1)
        picked += picks
    return picked


@given(ranks, shares)
def test_no_waiting_rank_is_passed_over_longer_than_the_stated_bound(found, share):
    policy = PickPolicy(lower_share=share, release=one_by_one)
    bound = (len(found) - 1) * (ceil(1 / share) + 1)
    picked = sequence([a_waiting(rank) for rank in found], policy, 4 * bound + 4)
    for rank in found:
        places = [-1, *(i for i, job in enumerate(picked) if job == f"rank-{rank}"), len(picked)]
        assert max(after - before for before, after in pairwise(places)) - 1 <= bound


@given(ranks, shares)
def test_the_lower_ranks_get_their_share_and_the_most_urgent_the_rest(found, share):
    length = 400
    picked = sequence([a_waiting(rank) for rank in found], PickPolicy(lower_share=share, release=one_by_one), length)
    lower = length - picked.count(f"rank-{min(found)}")
    # Of every 1/share releases of the most urgent rank one more goes to the others.
    assert abs(lower - length * share / (1 + share)) <= 2


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100), st.lists(st.integers(1, 50), max_size=9)), max_size=8),
    st.dictionaries(st.integers(0, 3), st.lists(st.integers(1, 50), max_size=6)),
    st.integers(0, 4),
    shares,
)
def test_no_rank_has_more_released_than_its_stretch_and_no_task_is_picked_twice(jobs, released, workers, share):
    policy = PickPolicy(lower_share=share, release=ReleasePolicy(ahead_tasks=2, ahead_rows=20, batch=30))
    waiting = [a_waiting(r, f"j{n}", due, tuple(rows)) for n, (r, due, rows) in enumerate(jobs)]
    picks, _ = pick(waiting, released, PickState(debt=1.0), policy, workers)
    assert len(picks) <= 30
    for rank in range(4):
        held = list(released.get(rank, []))
        for one in waiting:
            if one.rank == rank:
                assert picks.count(one.job) <= len(one.rows)
                held += one.rows[: picks.count(one.job)]
        grown = len(held) > len(released.get(rank, []))
        # The last one may reach beyond the stretch; without it there was still room.
        assert not grown or not policy.release.enough(len(held) - 1, sum(held) - max(held), workers)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_without_room_for_two_the_most_urgent_goes_first(found):
    waiting = [a_waiting(rank, f"{n}", rows=(1,)) for n, rank in enumerate(found)]
    picks, _ = pick(waiting, {}, PickState(), PickPolicy(release=one_by_one), workers=1)
    assert found[int(picks[0])] == min(found)


@given(st.floats(0, 1e6), st.floats(0, 1e6) | st.none())
def test_no_job_waits_behind_one_that_was_created_more_than_patience_later(created, deadline):
    policy = PickPolicy(patience_s=1000.0)
    old = due_of(a_job(created_at=created), policy)
    young = a_job(created_at=created + 1000.5, deadline_at=None if deadline is None else created + 1000.5 + deadline)
    assert old < due_of(young, policy)
