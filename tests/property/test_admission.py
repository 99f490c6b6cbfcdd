"""jobs/admission and workers/seating: who enters, who waits, and what rows leave free, for any load."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobs.admission import AdmitPolicy, InHand, Pace, decide, row_cap, wait_s
from tests.support.live import Ear, a_live_request
from workers.asks import Ask, packs_of
from workers.seating import Seating

pytestmark = pytest.mark.property

seats = st.integers(1, 300)
shares = st.floats(0, 1)
paces = st.builds(Pace, service_s=st.floats(0.001, 100), output_share=shares)
hands = st.builds(
    InHand, used=st.integers(0, 2000), tokens=st.integers(0, 10**6), behind=st.integers(0, 5000), pace=paces
)
policies = st.builds(AdmitPolicy, seats=seats, kv_tokens=st.sampled_from([0, 1000, 10**6]), max_wait_s=st.floats(0, 10))
requests = st.builds(
    a_live_request, seats=st.integers(1, 3000), input_tokens=st.integers(0, 10**5), output_tokens=st.integers(0, 10**5)
)


@given(hands, policies, requests)
def test_whoever_enters_was_promised_a_wait_within_the_bound_and_whoever_does_not_when_to_come_again(hand, policy, one):
    verdict = decide(hand, policy, one)
    if verdict.enters:
        assert verdict.wait_s <= policy.max_wait_s
    else:
        assert verdict.retry_after_s > 0
    assert decide(hand, policy, one.evolve(probe=True)).enters


@given(hands, policies, requests, st.integers(0, 500), st.integers(0, 10**5))
def test_more_in_hand_never_lets_in_what_less_keeps_out(hand, policy, one, more_seats, more_tokens):
    fuller = hand.evolve(used=hand.used + more_seats, tokens=hand.tokens + more_tokens)
    assert decide(hand, policy, one).enters or not decide(fuller, policy, one).enters
    assert wait_s(hand, policy) <= wait_s(fuller, policy) or not hand.used


@given(policies, requests, paces)
def test_an_empty_engine_takes_any_request_at_once(policy, one, pace):
    assert decide(InHand(pace=pace), policy, one).wait_s == 0


@given(seats, shares, st.integers(0, 600), st.integers(0, 3), st.integers(0, 600))
def test_rows_leave_the_kept_seats_free_and_never_more_than_what_requests_have_not(size, kept, asked, waiting, cap):
    rows = row_cap(size, kept, requests=asked, waiting=waiting, cap=cap)
    assert 0 <= rows <= cap
    if waiting:
        assert rows == 0
    else:
        assert rows + asked <= max(size, asked)
        assert rows <= size - min(size - 1, size * kept)


class Seats(RuleBasedStateMachine):
    """An engine that gives a seat that comes free to the request that waits longest, then to a row, and takes none
    away; what `Seating` says from outside must be what is so inside.
    """

    @initialize(size=st.integers(1, 5))
    def start(self, size):
        self.size = size
        self.seating = Seating(seats=size)
        self.names = count()
        self.running, self.waiting, self.rows = [], [], 0
        self.running_rows = 0

    def _fill(self):
        while self.waiting and len(self.running) + self.running_rows < self.size:
            self.running.append(self.waiting.pop(0))
        while self.running_rows < self.rows and len(self.running) + self.running_rows < self.size:
            self.running_rows += 1

    def _look(self):
        self._fill()
        self.seating.begin(self.rows, 0.0)

    @rule()
    def a_request_comes(self):
        request = a_live_request()
        packs = packs_of(request, most_tokens=10**9, most_seats=1)
        ask = Ask(request=request, hear=Ear(), entered_s=0.0, expected=0, profile=request.profile, packs=packs)
        pack = ask.packs.pop()
        self.seating.line.append(ask)
        self.seating.entered(ask, pack)
        ask.inside[next(self.names)] = pack
        self.waiting.append(ask)
        self._look()

    @rule(rows=st.integers(1, 9))
    def rows_come(self, rows):
        self.rows += rows
        self._look()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_request_ends(self, data):
        ask = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.seating.left(ask.inside.popitem()[1])
        self._look()

    @precondition(lambda self: self.running_rows)
    @rule()
    def a_row_ends(self):
        self.rows -= 1
        self.running_rows -= 1
        self.seating.row_ended()
        self._look()

    @invariant()
    def what_is_seen_is_what_is_so(self):
        if hasattr(self, "seating"):
            seen = (list(self.seating.line), self.seating.running, self.seating.used)
            assert seen == (self.waiting, self.running_rows, self.running_rows + len(self.running) + len(self.waiting))


TestSeats = Seats.TestCase
TestSeats.pytestmark = [pytest.mark.property]
