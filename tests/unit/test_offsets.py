"""workers/offsets.py: the unbroken run of finished records."""

import pytest

from workers.offsets import OffsetTracker

pytestmark = pytest.mark.unit


def tracker(*taken):
    fresh = OffsetTracker(topic_id="id-1")
    for offset in taken:
        fresh.take(offset)
    return fresh


def test_nothing_is_committed_before_something_is_finished():
    assert tracker(5, 6).committable() is None


def test_an_open_record_holds_back_those_behind_it():
    found = tracker(5, 6, 7)
    found.finish(7)
    found.finish(6)
    assert (found.committable(), found.open) == (None, 3)
    found.finish(5)
    assert (found.committable(), found.open) == (8, 0)


def test_an_offset_is_offered_once():
    found = tracker(5)
    found.finish(5)
    assert [found.committable(), found.committable()] == [6, None]


def test_gaps_in_the_log_hold_nothing_back():
    found = tracker(5, 9)
    found.finish(5)
    found.finish(9)
    assert found.committable() == 10


def test_a_record_polled_again_is_open_again():
    found = tracker(5, 6)
    found.finish(5)
    found.take(5)
    found.finish(6)
    assert found.committable() is None
    found.finish(5)
    assert found.committable() == 7


def test_records_from_before_the_committed_offset_are_not_taken_again():
    found = tracker(5)
    found.finish(5)
    assert found.committable() == 6
    found.take(5)
    assert (found.open, found.committable()) == (0, None)


def test_records_it_never_took_are_ignored():
    found = tracker(5)
    found.finish(4)
    found.finish(6)
    assert found.committable() is None
