"""jobs/ranges.py: sets of rows as ranges. The properties against sets of ints are in tests/property."""

import pytest

from jobs import ranges
from jobs.ranges import Range

pytestmark = pytest.mark.unit

GAPPED = (Range(2, 5), Range(7, 8), Range(10, 14))


def test_neighbouring_rows_become_one_range():
    assert ranges.from_rows([0, 1, 2, 5, 7, 8]) == (Range(0, 3), Range(5, 6), Range(7, 9))


def test_no_rows_are_no_ranges():
    assert (ranges.from_rows([]), ranges.count(()), list(ranges.rows_of(()))) == ((), 0, [])


@pytest.mark.parametrize("rows", [[1, 1], [2, 1], [5, 6, 5], [0, 1, 0]])
def test_rows_that_do_not_ascend_are_refused(rows):
    with pytest.raises(ValueError, match=f"rows must ascend: {rows[-1]} after"):
        ranges.from_rows(rows)


def test_a_stretch_cuts_ranges_at_its_ends():
    assert ranges.between(GAPPED, 4, 11) == (Range(4, 5), Range(7, 8), Range(10, 11))


@pytest.mark.parametrize(("start", "stop"), [(3, 3), (4, 3), (5, 7), (0, 2), (14, 20)])
def test_a_stretch_without_rows_holds_no_range_not_even_an_empty_one(start, stop):
    assert ranges.between(GAPPED, start, stop) == ()


def test_rows_are_counted_over_gaps_by_position():
    assert ranges.nth(GAPPED, 2, 6) == (Range(4, 5), Range(7, 8), Range(10, 12))


def test_scattered_positions_become_the_fewest_ranges():
    assert ranges.at(GAPPED, [0, 1, 3, 4, 7]) == (Range(2, 4), Range(7, 8), Range(10, 11), Range(13, 14))


def test_positions_of_adjacent_ranges_are_joined():
    assert ranges.at((Range(0, 2), Range(2, 4)), [1, 2]) == (Range(1, 3),)


def test_the_first_half_of_an_odd_number_is_the_larger():
    assert ranges.halves((Range(0, 2), Range(5, 8))) == ((Range(0, 2), Range(5, 6)), (Range(6, 8),))


def test_a_single_row_has_an_empty_second_half():
    assert ranges.halves((Range(3, 4),)) == ((Range(3, 4),), ())


def test_what_is_taken_away_leaves_the_pieces_around_it():
    assert ranges.minus(GAPPED, (Range(3, 4), Range(7, 11))) == (Range(2, 3), Range(4, 5), Range(11, 14))
