"""jobs/feed.py: whose rows enter the engine next."""

import pytest

from jobs.feed import Feedable, FeedPolicy, next_chunk

pytestmark = pytest.mark.unit

POLICY = FeedPolicy(cap=100, chunk=64, suspect_wait_s=30.0)


def work(**changes):
    return Feedable(rank=2, opened=1, unfed=10, in_flight=0).evolve(**changes)


def test_the_more_urgent_task_goes_first_whenever_it_was_opened():
    assert next_chunk([work(rank=2, opened=1), work(rank=0, opened=2)], POLICY) == (1, 10)


def test_tasks_of_one_rank_go_in_the_order_of_opening():
    assert next_chunk([work(opened=2), work(opened=1)], POLICY) == (1, 10)


def test_a_task_gets_no_more_than_a_chunk_at_a_time():
    assert next_chunk([work(unfed=500)], POLICY) == (0, 64)


def test_the_window_is_filled_by_the_next_task_when_the_first_runs_out():
    assert next_chunk([work(unfed=0, in_flight=60), work(opened=2, unfed=500)], POLICY) == (1, 40)


def test_little_room_is_not_worth_a_message_to_the_engine():
    assert POLICY.least_room == 12
    assert next_chunk([work(in_flight=89)], POLICY) is None
    assert next_chunk([work(in_flight=88)], POLICY) == (0, 10)


def test_a_full_window_takes_nothing_even_from_an_urgent_task():
    assert next_chunk([work(in_flight=100, unfed=0), work(rank=0, opened=2)], POLICY) is None


def test_nothing_is_fed_where_nothing_is_left():
    assert next_chunk([work(unfed=0)], POLICY) is None
    assert next_chunk([], POLICY) is None


def test_a_suspect_waits_until_the_engine_is_empty():
    suspect = work(opened=1, suspect=True)
    assert next_chunk([suspect, work(opened=2, unfed=0, in_flight=1)], POLICY) is None
    assert next_chunk([suspect], POLICY) == (0, 10)


def test_others_go_before_a_suspect_until_it_has_waited_too_long():
    suspect, other = work(opened=1, suspect=True), work(opened=2)
    assert next_chunk([suspect.evolve(waited_s=30.0), other], POLICY) == (1, 10)
    assert next_chunk([suspect.evolve(waited_s=30.1), other], POLICY) == (0, 10)
    assert next_chunk([suspect.evolve(waited_s=30.1), other.evolve(in_flight=1)], POLICY) is None


def test_nothing_joins_a_suspect_inside_but_its_own_rows():
    inside = work(opened=1, suspect=True, in_flight=4, unfed=0)
    assert next_chunk([inside, work(opened=2, rank=0)], POLICY) is None
    assert next_chunk([inside.evolve(unfed=3), work(opened=2, rank=0)], POLICY) == (0, 3)


def test_two_suspects_go_one_after_the_other():
    first, second = work(opened=1, suspect=True, unfed=0, in_flight=1), work(opened=2, suspect=True)
    assert next_chunk([first, second], POLICY) is None
    assert next_chunk([first.evolve(in_flight=0), second], POLICY) == (1, 10)


@pytest.mark.parametrize(("seats", "cap"), [(1, 2), (2, 4), (8, 14), (256, 448)])
def test_the_window_is_seven_quarters_of_the_seats(seats, cap):
    assert FeedPolicy.for_engine(seats) == FeedPolicy(cap=cap)


def test_a_lower_rank_that_waits_gets_its_reserved_seats_and_no_more():
    urgent, other = work(rank=0, unfed=500, in_flight=80), work(rank=3, opened=2, unfed=500)
    assert next_chunk([urgent, other], POLICY) == (0, 10)
    assert next_chunk([urgent, other], POLICY.evolve(lower_share=0.2)) == (1, 20)
    assert next_chunk([urgent.evolve(in_flight=70), other.evolve(in_flight=15)], POLICY) == (0, 15)


def test_an_urgent_row_gets_the_next_seats_however_many_others_are_inside():
    assert next_chunk([work(rank=3, unfed=500, in_flight=88), work(rank=0, opened=2)], POLICY) == (1, 10)


def test_alone_in_waiting_a_rank_may_have_every_seat():
    assert next_chunk([work(rank=0, unfed=500, in_flight=60), work(rank=3, unfed=0)], POLICY) == (0, 40)


def test_each_of_four_waiting_ranks_has_a_seat_of_its_own():
    policy = FeedPolicy(cap=4, lower_share=0.1)
    tasks = [work(rank=rank, opened=rank) for rank in range(4)]
    for rank in range(4):
        index, most = next_chunk(tasks, policy)
        assert (index, most) == (rank, 1), rank
        tasks[rank] = tasks[rank].evolve(in_flight=1, unfed=9)
