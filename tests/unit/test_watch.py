"""workers/reaper.Watch: only who has seen the database for a whole lease may end another's."""

import pytest

from workers.reaper import Watch

pytestmark = pytest.mark.unit

EPOCH = 1_700_000_000.0


def sights(*times, lease_s=30.0):
    """What a watch says at each (wall, monotonic) pair of seconds; a number stands for both clocks."""
    watch = Watch(lease_s)
    pairs = [time if isinstance(time, tuple) else (time, time) for time in times]
    return [watch.seen(EPOCH + wall, monotonic) for wall, monotonic in pairs]


def test_a_whole_lease_without_a_gap_must_pass_first():
    assert sights(*range(33)) == [False] * 30 + [True] * 3


def test_sights_five_seconds_apart_are_no_gap():
    assert sights(*range(0, 40, 5)) == [False] * 6 + [True] * 2


def test_after_an_outage_the_watch_starts_anew():
    before, after = range(32), range(38, 70)
    assert sights(*before, *after) == [False] * 30 + [True] * 2 + [False] * 30 + [True] * 2


@pytest.mark.parametrize("jump", [3600, -3600, 1.5, -1.5])
def test_after_a_jump_of_the_wall_clock_the_watch_starts_anew(jump):
    jumped = [(second + jump, second) for second in range(32, 64)]
    assert sights(*range(32), *jumped) == [False] * 30 + [True] * 2 + [False] * 30 + [True] * 2


def test_a_laptop_that_slept_ends_nobodys_lease():
    """The monotonic clock stands still while it sleeps."""
    assert sights(*range(32), (3632, 32.5), (3633, 33.5))[-2:] == [False, False]


def test_two_clocks_that_drift_a_little_agree():
    assert sights(*[(1.0005 * second, second) for second in range(32)])[-1] is True
