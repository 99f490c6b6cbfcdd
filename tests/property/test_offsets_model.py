"""A partition, its consumer and the tracker, driven at random: polls, answers in any order, commits, rebalances."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workers.offsets import OffsetTracker


class Partition(RuleBasedStateMachine):
    """log: offsets that are there (with the gaps that compaction and markers leave). in_hand: polled, not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = OffsetTracker(topic_id="t")
        self.log: list[int] = []
        self.position = 0
        self.committed = 0
        self.in_hand: list[int] = []
        self.answered: set[int] = set()

    def next_offset(self) -> int | None:
        return next((offset for offset in self.log if offset >= self.position), None)

    @rule(gap=st.integers(0, 2))
    def publish(self, gap: int) -> None:
        self.log.append((self.log[-1] + 1 if self.log else 0) + gap)

    @precondition(lambda self: self.next_offset() is not None)
    @rule(count=st.integers(1, 4))
    def poll(self, count: int) -> None:
        while count and (offset := self.next_offset()) is not None:
            self.tracker.take(offset)
            self.in_hand.append(offset)
            self.position, count = offset + 1, count - 1

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        offset = self.in_hand.pop(data.draw(st.integers(0, len(self.in_hand) - 1)))
        self.answered.add(offset)
        self.tracker.finish(offset)

    @rule(arrives=st.booleans())
    def commit(self, arrives: bool) -> None:
        offset = self.tracker.committable()
        if offset is not None and arrives:
            assert offset > self.committed
            self.committed = offset

    @rule()
    def rebalance(self) -> None:
        """The partition comes back and goes on from what was committed; what is in hand is still answered."""
        self.position = self.committed

    @rule()
    def restart(self) -> None:
        """A new process: nothing in hand, nothing remembered."""
        self.tracker = OffsetTracker(topic_id="t")
        self.in_hand = []
        self.position = self.committed

    @invariant()
    def nothing_unanswered_is_behind_the_committed_offset(self) -> None:
        assert [offset for offset in self.log if offset < self.committed and offset not in self.answered] == []

    @invariant()
    def with_nothing_in_hand_nothing_is_held_back(self) -> None:
        if not self.in_hand and self.position > self.committed:
            twin = OffsetTracker(topic_id="t", position=self.tracker.position, _open=dict(self.tracker._open))
            twin.committable()
            assert twin.open == 0


TestPartition = Partition.TestCase
TestPartition.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPartition.pytestmark = [pytest.mark.property]
