"""jobs/room.py: how much work a worker holds beside what is inside its engine."""

import pytest

from jobs.room import Pace, RoomPolicy, wanted_tokens

pytestmark = pytest.mark.unit

POLICY = RoomPolicy(cap=448, soon_s=2.0)


def test_before_anything_is_known_it_is_two_windows_of_rows():
    assert wanted_tokens(Pace(), POLICY) == 896
    assert wanted_tokens(Pace(row_tokens=500.0), POLICY) == 448_000


def test_a_fast_engine_has_as_much_as_it_starts_soon():
    assert wanted_tokens(Pace(tokens_per_s=1e6, row_tokens=100.0), POLICY) == 2_000_000


def test_a_slow_engine_has_what_may_become_free_at_once_and_no_more():
    assert wanted_tokens(Pace(tokens_per_s=50.0, row_tokens=100.0), POLICY) == 89_600


def test_long_rows_are_held_for_twice_a_cache_and_not_for_two_windows():
    policy = POLICY.evolve(kv_tokens=100_000)
    assert wanted_tokens(Pace(row_tokens=8000.0), policy) == 200_000
    assert wanted_tokens(Pace(row_tokens=100.0), policy) == 89_600


def test_something_is_always_wanted():
    assert wanted_tokens(Pace(row_tokens=0.0), POLICY.evolve(cap=1)) == 1
