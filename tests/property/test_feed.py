"""jobs/feed.py: played through, no rule is broken and nothing starves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.feed import Feedable, FeedPolicy, FeedState, next_chunk

pytestmark = pytest.mark.property

policies = st.builds(
    FeedPolicy, cap=st.integers(1, 200), chunk=st.integers(1, 64), lower_share=st.sampled_from([0.01, 0.1, 0.5])
)
todo = st.builds(
    Feedable,
    rank=st.integers(0, 3),
    opened=st.integers(0, 5),
    unfed=st.integers(1, 90),
    in_flight=st.just(0),
    suspect=st.booleans(),
    waited_s=st.sampled_from([0.0, 31.0]),
    job=st.sampled_from("abcdef"),
    row_tokens=st.sampled_from([1.0, 7.0]),
)


class Play:
    """Tasks, the feeder's state, and an engine that ends whatever rows it is told to."""

    def __init__(self, tasks, policy):
        self.tasks, self.policy, self.state = list(tasks), policy, FeedState()

    def feed(self):
        """The task that was fed, or None."""
        feed, self.state = next_chunk(self.tasks, self.policy, self.state)
        if feed is None:
            return None
        task = self.tasks[feed.index]
        assert 1 <= feed.rows <= min(task.unfed, self.policy.chunk)
        lifted = task.lifted + feed.rows * (feed.rank < task.rank)
        now = task.evolve(unfed=task.unfed - feed.rows, in_flight=task.in_flight + feed.rows, lifted=lifted)
        self.tasks[feed.index] = now
        return now, feed.rows

    def end(self, index, rows, lifted):
        task = self.tasks[index]
        self.tasks[index] = task.evolve(in_flight=task.in_flight - rows, lifted=task.lifted - lifted)

    def inside(self, rank):
        """As the engine sees it: rows of this rank and more urgent ones."""
        return sum(task.in_flight if task.rank <= rank else task.lifted for task in self.tasks)


@given(st.lists(todo, min_size=1, max_size=7), policies, st.data())
def test_the_feeder_never_overfills_never_crowds_a_suspect_and_never_rests_with_an_empty_engine(tasks, policy, data):
    """Feed until it says no, let some rows finish, and again, until every row has been through."""
    play, left = Play(tasks, policy), sum(task.unfed for task in tasks)
    while left:
        while play.feed():
            assert all(play.inside(rank) <= policy.cap for rank in range(4))
            inside = [task for task in play.tasks if task.in_flight]
            assert len(inside) == 1 or not any(task.suspect for task in inside)
            assert len(play.state.served) <= len({task.job for task in tasks})
        busy = [i for i, task in enumerate(play.tasks) if task.in_flight]
        assert busy, "rows are left, the engine is empty, and nothing was fed"
        index = data.draw(st.sampled_from(busy))
        task = play.tasks[index]
        done = data.draw(st.integers(1, task.in_flight))
        low, high = max(0, done - (task.in_flight - task.lifted)), min(done, task.lifted)
        play.end(index, done, data.draw(st.integers(low, high)))
        left -= done


@given(st.lists(todo, min_size=1, max_size=5), policies)
def test_among_the_unsuspected_none_goes_before_a_more_urgent_or_an_earlier_one(tasks, policy):
    clean = [task.evolve(suspect=False) for task in tasks]
    feed, _ = next_chunk(clean, policy)
    assert feed is not None
    assert (clean[feed.index].rank, clean[feed.index].opened) == min((t.rank, t.opened) for t in clean)


@given(st.sampled_from([1, 2, 3, 8, 64, 256]), st.sets(st.integers(0, 3), min_size=2), st.sampled_from([0.1, 0.5]))
def test_every_rank_that_waits_is_fed_again_and_again_however_few_seats_there_are(seats, ranks, share):
    """The engine starts the most urgent first, and of those the first come; all jobs are endless."""
    policy = FeedPolicy.for_engine(seats, share)
    play = Play([Feedable(rank=rank, opened=rank, unfed=10**9, in_flight=0, job=str(rank)) for rank in ranks], policy)
    queue, since = [], dict.fromkeys(ranks, 0)
    bound = seats + 2 * policy.cap + policy.patience_rows(len(ranks)) + len(ranks) * policy.chunk
    for _ in range(3 * bound // seats):
        while fed := play.feed():
            task, rows = fed
            enters = min(ranks) if task.rank != min(ranks) else task.rank
            queue += [(enters, task.rank)] * rows
        running, queue = queue[:seats], queue[seats:]
        for _, rank in running:
            index = next(i for i, task in enumerate(play.tasks) if task.rank == rank)
            play.end(index, 1, int(rank != min(ranks)))
            since = {other: 0 if other == rank else rows + 1 for other, rows in since.items()}
        assert max(since.values()) <= bound
