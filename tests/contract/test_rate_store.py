"""The shared state of rate limits: one body over every adapter; and replicas that share it, all at once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.clocks import SystemClock
from infra.limits import RateLimits
from infra.sql import AT_ONCE, open_store
from jobs.allotment import AllotmentPolicy
from jobs.errors import RateLimited
from jobs.limiting import SharedLimiter
from jobs.ports.limiting import Demand, Gauge, Kind, Level, Round, Verdict
from jobs.tenancy import Tenant
from tests.support.api import until
from tests.support.filing import twice
from tests.support.limits import FREE, MemoryRates, limited

pytestmark = pytest.mark.contract

REQUESTS, TOKENS, PLACES = (Gauge("key:a", kind) for kind in (Kind.REQUESTS, Kind.TOKENS, Kind.PLACES))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_rates(request, clock):
    """Opens the same shared state as often as it is called, as replicas do."""
    if request.param == "memory":
        shared = MemoryRates(clock)
        yield lambda: shared
        return
    where = request.getfixturevalue({"sqlite": "sqlite_home", "postgres": "postgres_url"}[request.param])
    opened = []

    def open_one():
        opened.append(open_store(where, clock=clock, pace=AT_ONCE))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def rates(open_rates):
    return open_rates()


def want(gauge, limit, cost=1, ahead=0):
    return Demand(gauge=gauge, limit=limit, cost=cost, ahead=ahead)


def say(rates, *asks, holder="one", **said):
    return rates.take_rates(Round(holder=holder, lease_s=15.0, asks=asks, **said))


def remaining(rates, *limits):
    return [level.remaining for level in rates.rate_levels(limits)]


def test_what_nobody_took_is_all_there(rates):
    limits = [(REQUESTS, 5), (PLACES, 3), (REQUESTS, 5)]
    assert rates.rate_levels(limits) == [Level(remaining=5), Level(remaining=3), Level(remaining=5)]
    assert (rates.rate_levels([]), say(rates)) == ([], [])


def test_units_are_taken_until_there_are_none_and_flow_back_with_time(rates, clock):
    asks = [(want(REQUESTS, 3),)] * 4
    verdicts = say(rates, *asks)
    assert [v.refused for v in verdicts] == [None, None, None, 0]
    assert [v.levels[0].remaining for v in verdicts] == [2, 1, 0, 0]
    assert verdicts[3].wait_s == pytest.approx(20.0, abs=1e-5)
    clock.advance(20)
    assert [v.refused for v in say(rates, *asks)] == [None, 0, 0, 0]
    assert rates.rate_levels([(REQUESTS, 3)])[0].reset_s == pytest.approx(60.0, abs=1e-5)


def test_an_ask_is_granted_in_all_its_demands_or_in_none(rates):
    both = (want(REQUESTS, 10), want(TOKENS, 100, 60), want(PLACES, 10))
    granted, refused = say(rates, both, both)
    assert (granted.refused, granted.ahead, refused.refused) == (None, [0, 0, 0], 1)
    assert remaining(rates, (REQUESTS, 10), (TOKENS, 100), (PLACES, 10)) == [9, 40, 9]


def test_units_are_given_ahead_while_half_is_left(rates):
    asks = [(want(REQUESTS, 100, ahead=20), want(PLACES, 100, ahead=20))] * 4
    assert [v.ahead for v in say(rates, *asks)] == [[20, 20], [20, 20], [0, 0], [0, 0]]
    assert remaining(rates, (REQUESTS, 100), (PLACES, 100)) == [56, 56]


def test_what_comes_back_can_be_taken_again_and_what_is_owed_is_not_there(rates):
    say(rates, (want(TOKENS, 100, 100),))
    say(rates, back=[(TOKENS, 100, 30), (REQUESTS, 10, -4)])
    assert remaining(rates, (TOKENS, 100), (REQUESTS, 10)) == [30, 6]
    refused = say(rates, (want(TOKENS, 100, 31),), back=[(TOKENS, 100, -60)])[0]
    assert (refused.wait_s, refused.levels) == (pytest.approx(36.6, abs=1e-5), [refused.levels[0].evolve(remaining=0)])


def test_more_than_a_limit_ever_has_is_refused_for_good(rates):
    assert say(rates, (want(REQUESTS, 5), want(TOKENS, 10, 11)))[0] == Verdict(
        refused=1, wait_s=None, levels=[Level(remaining=5), Level(remaining=10)]
    )


def test_places_are_those_of_all_holders_whose_claim_has_not_lapsed(rates, clock):
    say(rates, (want(PLACES, 3),), (want(PLACES, 3),), holder="one")
    say(rates, (want(PLACES, 3),), holder="two")
    assert say(rates, (want(PLACES, 3),), holder="three")[0].refused == 0
    clock.advance(10)
    say(rates, held={"key:a": 2}, holder="one")
    clock.advance(5)
    assert remaining(rates, (PLACES, 3)) == [1]
    say(rates, held={"key:a": 1}, holder="one")
    assert remaining(rates, (PLACES, 3)) == [2]
    say(rates, held={"key:a": 0}, holder="one")
    assert [v.refused for v in say(rates, *[(want(PLACES, 3),)] * 4, holder="three")] == [None, None, None, 0]


def test_limits_of_one_scope_are_none_of_another_s(rates):
    other = Gauge("tenant:a", Kind.REQUESTS)
    say(rates, (want(REQUESTS, 2, 2),))
    assert remaining(rates, (REQUESTS, 2), (other, 2)) == [0, 2]


def test_a_round_whose_commit_was_not_answered_gives_nothing_back_twice(open_again):
    rates = open_again()
    say(rates, (want(TOKENS, 1000, 600), want(PLACES, 5, 2)))
    again = twice(rates)
    say(again, back=[(TOKENS, 1000, 100)], held={"key:a": 1})
    assert remaining(rates, (TOKENS, 1000), (PLACES, 5)) == [500, 4]


# ---- all at once --------------------------------------------------------------------------------

CALLERS, LIMIT = 200, 10
KINDS = [
    ({"requests": LIMIT}, {}),
    ({"tokens": LIMIT * 7}, {}),
    ({"places": LIMIT}, {}),
    ({}, {"requests_per_minute": LIMIT}),
    ({"requests": 50, "tokens": 7 * LIMIT, "places": 50}, {"concurrent_requests": 20}),
]


def at_once(turns):
    """Everything that each of the calls came to, begun at the same moment."""
    gate = threading.Barrier(len(turns))

    def go(turn):
        gate.wait()
        return turn()

    with ThreadPoolExecutor(len(turns)) as threads:
        return list(threads.map(go, turns))


def replicas(open_rates, count, **policy):
    policy = AllotmentPolicy(**policy)
    return [SharedLimiter(open_rates(), SystemClock(), f"replica-{n}", policy) for n in range(count)]


def hold_or_none(limiter, key, tenant):
    try:
        return limiter.quick(key, tenant, 7) or limiter.hold(key, tenant, 7)
    except RateLimited:
        return None


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("of_key", "of_tenant"), KINDS)
def test_of_200_requests_at_a_limit_of_10_units_exactly_10_pass(open_rates, count, of_key, of_tenant):
    limiters = replicas(open_rates, count)
    key, tenant = limited(**of_key), Tenant(name="default", **of_tenant)
    turns = [lambda at=n: hold_or_none(limiters[at % count], key, tenant) for n in range(CALLERS)]
    assert sum(hold is not None for hold in at_once(turns)) == LIMIT


@pytest.mark.parametrize("count", [1, 3])
def test_never_more_than_10_are_under_way_and_each_of_200_gets_its_turn(open_rates, count):
    limiters, key = replicas(open_rates, count), limited(places=LIMIT)
    lock, under_way, most = threading.Lock(), 0, 0

    def served(limiter):
        nonlocal under_way, most
        while (hold := hold_or_none(limiter, key, FREE)) is None:
            limiter.beat()
        with lock:
            under_way += 1
            most = max(most, under_way)
        limiter.beat()  # meanwhile others come and ask
        with lock:
            under_way -= 1
        hold.settle(7)
        return True

    turns = [lambda at=n: served(limiters[at % count]) for n in range(CALLERS)]
    assert at_once(turns) == [True] * (CALLERS)
    assert 1 <= most <= LIMIT


def test_three_replicas_that_take_ahead_let_no_more_through_and_leave_nothing_unused(open_rates, clock):
    """A limit that is large enough to be taken ahead: what idle ones hold comes back, and all of it is used."""
    limiters, key = replicas(open_rates, 3, idle_s=0.0), limited(requests=600)
    passed = at_once([lambda at=n: hold_or_none(limiters[at % 3], key, FREE) for n in range(CALLERS)])
    assert all(passed)
    for limiter in limiters:
        limiter.beat()
    busy = limiters[0]
    while hold_or_none(busy, key, FREE) is not None:
        passed.append(True)
    assert len(passed) == 600


def test_a_process_gives_back_what_is_free_without_being_told_to_and_all_when_it_ends():
    clock = SystemClock()
    rates = MemoryRates(clock)
    limits = RateLimits(rates, clock, "one", AllotmentPolicy(gather_s=0.0, idle_s=3600.0))
    key, places = limited("a", places=1, requests=600), [(PLACES, 1)]
    hold = limits.hold(key, FREE, 0)
    assert remaining(rates, *places) == [0]
    hold.settle(0)
    until(lambda: remaining(rates, *places) == [1], "the place that was given back")
    assert remaining(rates, (REQUESTS, 600))[0] < 595
    limits.close()
    assert remaining(rates, (REQUESTS, 600))[0] >= 599


def test_a_process_whose_shared_state_is_away_gives_back_once_it_answers():
    clock = SystemClock()
    rates = MemoryRates(clock)
    limits = RateLimits(rates, clock, "one", AllotmentPolicy(gather_s=0.0))
    hold = limits.hold(limited("a", places=1), FREE, 0)
    rates.away = True
    hold.release()
    until(lambda: rates.missed >= 1, "a beat that is not answered")
    rates.away = False
    until(lambda: remaining(rates, (PLACES, 1)) == [1], "the place that was given back")
    limits.close()
