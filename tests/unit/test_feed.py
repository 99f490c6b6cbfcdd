"""jobs/feed.py: whose rows enter the engine next."""

import pytest

from jobs.feed import Feed, Feedable, FeedPolicy, FeedState, next_chunk

pytestmark = pytest.mark.unit

POLICY = FeedPolicy(cap=100, chunk=64, suspect_wait_s=30.0)


def work(**changes):
    return Feedable(rank=2, opened=1, unfed=10, in_flight=0).evolve(**changes)


def chosen(tasks, policy=POLICY, state=None):
    """(index, rows) of what is fed next."""
    feed, _ = next_chunk(tasks, policy, state)
    return None if feed is None else (feed.index, feed.rows)


def test_the_more_urgent_task_goes_first_whenever_it_was_opened():
    assert chosen([work(rank=2, opened=1), work(rank=0, opened=2)], POLICY) == (1, 10)


def test_tasks_of_one_rank_go_in_the_order_of_opening():
    assert chosen([work(opened=2), work(opened=1)], POLICY) == (1, 10)


def test_a_task_gets_no_more_than_a_chunk_at_a_time():
    assert chosen([work(unfed=500)], POLICY) == (0, 64)


def test_the_window_is_filled_by_the_next_task_when_the_first_runs_out():
    assert chosen([work(unfed=0, in_flight=60), work(opened=2, unfed=500)], POLICY) == (1, 40)


def test_little_room_is_not_worth_a_message_to_the_engine():
    assert POLICY.least_room == 12
    assert chosen([work(in_flight=89)], POLICY) is None
    assert chosen([work(in_flight=88)], POLICY) == (0, 10)


def test_a_full_window_takes_nothing_of_its_own_rank_or_a_lower_one():
    assert chosen([work(in_flight=100, unfed=0), work(opened=2)], POLICY) is None
    assert chosen([work(in_flight=100, unfed=0), work(rank=3, opened=2)], POLICY) is None


def test_less_urgent_rows_inside_keep_no_urgent_one_out():
    full = work(rank=3, unfed=500, in_flight=100)
    assert chosen([full, work(rank=0, opened=2, unfed=1)], POLICY) == (1, 1)
    assert chosen([full, work(rank=0, opened=2, unfed=500, in_flight=30)], POLICY) == (1, 60)


def test_nothing_is_fed_where_nothing_is_left():
    assert chosen([work(unfed=0)], POLICY) is None
    assert chosen([], POLICY) is None


def test_a_suspect_waits_until_the_engine_is_empty():
    suspect = work(opened=1, suspect=True)
    assert chosen([suspect, work(opened=2, unfed=0, in_flight=1)], POLICY) is None
    assert chosen([suspect], POLICY) == (0, 10)


def test_others_go_before_a_suspect_until_it_has_waited_too_long():
    suspect, other = work(opened=1, suspect=True), work(opened=2)
    assert chosen([suspect.evolve(waited_s=30.0), other], POLICY) == (1, 10)
    assert chosen([suspect.evolve(waited_s=30.1), other], POLICY) == (0, 10)
    assert chosen([suspect.evolve(waited_s=30.1), other.evolve(in_flight=1)], POLICY) is None


def test_nothing_joins_a_suspect_inside_but_its_own_rows():
    inside = work(opened=1, suspect=True, in_flight=4, unfed=0)
    assert chosen([inside, work(opened=2, rank=0)], POLICY) is None
    assert chosen([inside.evolve(unfed=3), work(opened=2, rank=0)], POLICY) == (0, 3)


def test_two_suspects_go_one_after_the_other():
    first, second = work(opened=1, suspect=True, unfed=0, in_flight=1), work(opened=2, suspect=True)
    assert chosen([first, second], POLICY) is None
    assert chosen([first.evolve(in_flight=0), second], POLICY) == (1, 10)


@pytest.mark.parametrize(("seats", "cap"), [(1, 2), (2, 4), (8, 14), (256, 448)])
def test_the_window_is_seven_quarters_of_the_seats(seats, cap):
    assert FeedPolicy.for_engine(seats) == FeedPolicy(cap=cap)


def test_a_lower_rank_that_waits_gets_its_reserved_seats_and_no_more():
    urgent, other = work(rank=0, unfed=500, in_flight=80), work(rank=3, opened=2, unfed=500)
    assert chosen([urgent, other], POLICY) == (0, 10)
    assert chosen([urgent, other], POLICY.evolve(lower_share=0.2)) == (1, 20)
    seated = other.evolve(in_flight=30, lifted=10)  # the others of it entered before anything urgent was there
    assert chosen([urgent.evolve(in_flight=70), seated], POLICY) == (0, 20)


def test_alone_in_waiting_a_rank_may_have_every_seat():
    assert chosen([work(rank=0, unfed=500, in_flight=60), work(rank=3, unfed=0)], POLICY) == (0, 40)


def test_each_of_four_waiting_ranks_has_a_seat_of_its_own():
    tasks, state = [work(rank=rank, opened=rank) for rank in range(4)], FeedState()
    for rank in range(4):
        feed, state = next_chunk(tasks, FeedPolicy(cap=4), state)
        assert feed == Feed(index=rank, rows=1, rank=0)
        tasks[rank] = tasks[rank].evolve(in_flight=1, unfed=9, lifted=int(rank > 0))


def test_a_rank_that_many_rows_have_passed_goes_next_where_there_is_no_seat_for_it():
    policy, ranks = FeedPolicy(cap=2, lower_share=0.1), [work(rank=rank, opened=rank, unfed=9) for rank in range(4)]
    assert policy.patience_rows(4) == 30
    assert chosen(ranks, policy, FeedState(passed={2: 29, 3: 29})) == (0, 1)
    assert chosen(ranks, policy, FeedState(passed={2: 30, 3: 31})) == (3, 1)


# ---- jobs of a rank -------------------------------------------------------------------------------


def test_a_job_keeps_its_turn_for_a_chunk_and_then_the_least_served_has_it():
    jobs = [work(opened=1, unfed=500, job="a", row_tokens=2.0), work(opened=2, unfed=500, job="b")]
    policy, state, fed = FeedPolicy(cap=48, chunk=64), FeedState(), []
    for _ in range(5):
        feed, state = next_chunk(jobs, policy, state)
        fed.append((jobs[feed.index].job, feed.rows))
    assert fed == [("a", 48), ("a", 16), ("b", 48), ("b", 16), ("b", 48)]
    assert state.served == {"a": 128.0, "b": 112.0}


def test_a_job_that_joins_begins_level_with_the_least_served():
    state = FeedState(served={"a": 900.0, "b": 700.0, "gone": 5.0})
    jobs = [work(opened=n, job=job, unfed=500, in_flight=1) for n, job in enumerate("abc")]
    feed, after = next_chunk(jobs, POLICY, state.evolve(turns={2: ("c", 64)}))
    assert (feed.index, after.served) == (2, {"a": 900.0, "b": 700.0, "c": 764.0})


def test_a_fifth_job_waits_until_one_of_the_four_has_no_rows_left():
    served = FeedState(served={"a": 10.0, "b": 10.0, "c": 10.0, "d": 10.0, "e": 0.0})
    jobs = [work(opened=n, job=job) for n, job in enumerate("abcde")]
    assert chosen(jobs, POLICY, served) == (0, 10)
    assert chosen([jobs[0].evolve(unfed=0), *jobs[1:]], POLICY, served) == (4, 10)


def test_a_jobs_tasks_go_in_the_order_of_opening():
    served = FeedState(served={"a": 5.0, "b": 9.0})
    jobs = [work(opened=1, job="b"), work(opened=3, job="a"), work(opened=2, job="a")]
    assert chosen(jobs, POLICY, served) == (2, 10)
