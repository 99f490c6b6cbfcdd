"""Rate limits: whatever is asked for and when, no more is let through, and no less than there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import gcra
from jobs.gcra import MINUTE_NS, Later, Rate

pytestmark = pytest.mark.property

START = 1_790_000_000 * 10**9
units = st.integers(1, 10**8)
rates = st.builds(Rate, per_minute=units, burst=units) | st.builds(
    Rate, per_minute=st.integers(1, 70), burst=st.integers(1, 70)
)
gaps = st.integers(0, 2 * MINUTE_NS) | st.integers(0, 10**6)
asks = st.lists(st.tuples(gaps, st.floats(0, 1.1)), max_size=60)


def played(rate: Rate, asked):
    """(time, units) of what was granted, and the tat at the end."""
    tat, now, granted = 0, START, []
    for gap, share in asked:
        now += gap
        cost = max(1, round(rate.burst * share))
        found = gcra.take(tat, now, cost, rate)
        if not isinstance(found, Later):
            tat = found
            granted.append((now, cost))
    return granted, tat


@given(rates, asks)
def test_no_window_lets_more_through_than_the_burst_and_what_flows_off_in_it(rate, asked):
    granted, _ = played(rate, asked)
    for first, (begins, _) in enumerate(granted):
        total = 0
        for at, cost in granted[first:]:
            total += cost
            flowed_off = (at - begins) * rate.per_minute / MINUTE_NS
            assert total < rate.burst + flowed_off + 1


@given(st.integers(1, 10**5), st.integers(0, 10**5))
def test_all_of_the_burst_can_be_taken_one_by_one_and_not_one_more(limit, before):
    rate = gcra.a_minute(min(limit, 2000))
    tat = before
    for _ in range(rate.burst):
        tat = gcra.take(tat, START, 1, rate)
    assert isinstance(gcra.take(tat, START, 1, rate), Later)
    assert gcra.standing(tat, START, rate)[0] == 0


@given(rates, asks, gaps)
def test_what_is_said_to_remain_is_granted_and_one_more_is_not(rate, asked, gap):
    granted, tat = played(rate, asked)
    now = (granted[-1][0] if granted else START) + gap
    remaining, reset_ns = gcra.standing(tat, now, rate)
    assert not isinstance(gcra.take(tat, now, remaining, rate), Later)
    assert isinstance(gcra.take(tat, now, remaining + 1, rate), Later)
    assert gcra.standing(tat, now + reset_ns, rate) == (rate.burst, 0)


@given(rates, asks, gaps, st.floats(0, 1))
def test_a_refusal_says_when_the_same_is_granted_and_not_a_moment_later(rate, asked, gap, share):
    granted, tat = played(rate, asked)
    now, cost = (granted[-1][0] if granted else START) + gap, max(1, round(rate.burst * share))
    found = gcra.take(tat, now, cost, rate)
    if isinstance(found, Later):
        assert not isinstance(gcra.take(tat, now + found.wait_ns, cost, rate), Later)
        assert isinstance(gcra.take(tat, now + found.wait_ns - 1, cost, rate), Later)


@given(rates)
def test_what_is_larger_than_the_burst_is_never_granted(rate):
    assert gcra.take(0, START, rate.burst + 1, rate) == Later(None)


@given(rates, asks, gaps, st.floats(0, 1))
def test_what_is_given_back_can_be_taken_again_and_no_more(rate, asked, gap, share):
    granted, tat = played(rate, asked)
    now, cost = (granted[-1][0] if granted else START) + gap, max(1, round(rate.burst * share))
    before = gcra.standing(tat, now, rate)[0]
    taken = gcra.charge(tat, now, cost, rate)
    after = gcra.standing(gcra.give_back(taken, cost, rate), now, rate)[0]
    assert before - 1 <= after <= before


@given(rates, asks, st.floats(0, 1))
def test_more_than_was_reserved_is_charged_past_the_limit_and_the_next_wait(rate, asked, share):
    granted, tat = played(rate, asked)
    now = granted[-1][0] if granted else START
    owed = gcra.charge(tat, now, 2 * rate.burst, rate)
    assert gcra.standing(owed, now, rate)[0] == 0
    assert isinstance(gcra.take(owed, now, 1, rate), Later)
