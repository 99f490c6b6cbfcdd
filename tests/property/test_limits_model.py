"""Replicas that hold, settle, release, fall silent and die in any order pass no limit, and leave nothing taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.clocks import ManualClock
from jobs.errors import RateLimited
from jobs.limiting import SharedLimiter
from jobs.ports.limiting import Kind
from tests.support.limits import FREE, MemoryRates, level, limited

pytestmark = pytest.mark.property

which = st.integers(0, 2)
moves = st.lists(
    st.tuples(st.just("hold"), which, st.integers(1, 40))
    | st.tuples(st.just("settle"), which, st.integers(0, 60))
    | st.tuples(st.just("release"), which, st.just(0))
    | st.tuples(st.just("wait"), which, st.sampled_from([0, 1, 2, 4]))
    | st.tuples(st.just("die"), which, st.just(0)),
    max_size=60,
)
limits = st.tuples(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 40))


class Town:
    """Three replicas over one shared state, and what they let through."""

    def __init__(self, requests: int, tokens: int, places: int) -> None:
        self.clock = ManualClock()
        self.store = MemoryRates(self.clock)
        self.key = limited(requests=requests, tokens=tokens, places=places)
        self.limiters = [self.new(number) for number in range(3)]
        self.held = [[], [], []]
        self.born = 3
        self.passed = self.spent = 0

    def new(self, number: int) -> SharedLimiter:
        return SharedLimiter(self.store, self.clock, f"replica-{number}")

    def hold(self, at: int, tokens: int) -> None:
        try:
            hold = self.limiters[at].quick(self.key, FREE, tokens) or self.limiters[at].hold(self.key, FREE, tokens)
        except RateLimited:
            return
        self.held[at].append((hold, tokens))
        self.passed, self.spent = self.passed + 1, self.spent + tokens

    def settle(self, at: int, tokens: int) -> None:
        if self.held[at]:
            hold, reserved = self.held[at].pop(0)
            used = min(tokens, reserved)
            hold.settle(used)
            self.spent -= reserved - used

    def release(self, at: int, _: int) -> None:
        if self.held[at]:
            hold, reserved = self.held[at].pop(0)
            hold.release()
            self.passed, self.spent = self.passed - 1, self.spent - reserved

    def wait(self, _: int, seconds: int) -> None:
        self.clock.advance(seconds)
        for limiter in self.limiters:
            limiter.beat()

    def die(self, at: int, _: int) -> None:
        self.limiters[at], self.held[at] = self.new(self.born), []
        self.born += 1


@given(limits, moves)
def test_no_limit_is_passed_and_nothing_stays_taken(limit, made):
    town, (requests, tokens, places) = Town(*limit), limit
    for name, at, number in made:
        getattr(town, name)(at, number)
        flowed_off = town.clock.monotonic() / 60
        assert town.passed < requests * (1 + flowed_off) + 1
        assert town.spent < tokens * (1 + flowed_off) + 1
        assert sum(map(len, town.held)) <= places
    for at, held in enumerate(town.held):
        for _ in list(held):
            town.release(at, 0)
    town.wait(0, 16)  # claims of the dead lapse
    assert level(town.store, Kind.PLACES, places) == places
    town.wait(0, 61)
    assert [level(town.store, Kind.REQUESTS, requests), level(town.store, Kind.TOKENS, tokens)] == [requests, tokens]
