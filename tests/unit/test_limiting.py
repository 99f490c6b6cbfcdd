"""jobs/limiting.py over a shared state in memory: allotments, rounds, what comes back."""

import threading

import pytest

from infra.clocks import ManualClock
from jobs.allotment import AllotmentPolicy
from jobs.errors import DatabaseUnavailable, RateLimited
from jobs.limiting import SharedLimiter
from jobs.ports.limiting import Kind, Standing
from jobs.tenancy import Tenant
from tests.support.limits import FREE, MemoryRates, level, limited, replicas

pytestmark = pytest.mark.unit


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return MemoryRates(clock)


@pytest.fixture
def limiter(store, clock):
    return SharedLimiter(store, clock, "replica-0")


@pytest.fixture
def exact(store, clock):
    """One that takes nothing ahead."""
    return SharedLimiter(store, clock, "replica-0", AllotmentPolicy(ahead_s=0.0, places=0.0))


def refused(limiter, key, tenant=FREE, tokens=0):
    with pytest.raises(RateLimited) as caught:
        limiter.hold(key, tenant, tokens)
    return caught.value


def test_what_has_no_limit_asks_nobody(limiter, store):
    hold = limiter.quick(limited(), FREE, 10**9)
    hold.settle(5)
    assert (hold.standing, store.rounds, limiter.beat()) == (Standing(), [], None)


def test_a_refusal_says_which_limit_and_when_and_changes_no_counter(exact, store):
    key = limited(requests=2, tokens=1000)
    for _ in range(2):
        exact.hold(key, FREE, 100)
    error = refused(exact, key, tokens=100)
    assert error.sentence == (
        "API key key_a may have 2 requests a minute; this asks for 1 more, for which there is room in 30 s."
    )
    assert (error.code, error.retry_after_s) == ("rate_limit_exceeded", pytest.approx(30.0))
    assert error.standing.evolve(reset_tokens_s=None) == Standing(
        limit_requests=2, remaining_requests=0, reset_requests_s=60.0, limit_tokens=1000, remaining_tokens=800
    )
    assert level(store, Kind.TOKENS, 1000) == 800


def test_of_key_and_tenant_all_is_taken_or_nothing(exact, store):
    key, tenant = limited(requests=10, tokens=500), Tenant(name="acme", requests_per_minute=1, concurrent_requests=5)
    exact.hold(key, tenant, 100)
    error = refused(exact, key, tenant, 100)
    assert (error.who, error.what) == ("Tenant acme", "requests a minute")
    assert [
        level(store, Kind.REQUESTS, 10),
        level(store, Kind.TOKENS, 500),
        level(store, Kind.REQUESTS, 1, "tenant:acme"),
        level(store, Kind.PLACES, 5, "tenant:acme"),
    ] == [9, 400, 0, 4]


def test_what_asks_for_more_than_the_whole_limit_is_never_granted(limiter):
    error = refused(limiter, limited(tokens=1000), tokens=1001)
    assert (error.retry_after_s, error.reason) == (None, "this asks for 1,001, which can never be granted")


def test_the_standing_is_of_the_narrower_limit(exact):
    hold = exact.hold(limited(requests=10), Tenant(name="acme", requests_per_minute=5, tokens_per_minute=600), 60)
    assert hold.standing == Standing(
        limit_requests=5, remaining_requests=4, reset_requests_s=12.0,
        limit_tokens=600, remaining_tokens=540, reset_tokens_s=6.0,
    )  # fmt: skip


def test_a_large_limit_is_taken_ahead_so_that_most_requests_ask_nobody(limiter, store):
    key = limited(requests=6000)
    holds = [limiter.hold(key, FREE, 0) for _ in range(300)]
    assert (len(store.rounds), level(store, Kind.REQUESTS, 6000)) == (3, 6000 - 303)
    assert holds[-1].standing.remaining_requests == 6000 - 300


def test_nothing_is_taken_ahead_of_a_small_limit_or_where_little_is_left(limiter, store, clock):
    small, large = limited("key_b", requests=59), limited(requests=6000)
    limiter.hold(small, FREE, 0)
    other = SharedLimiter(store, clock, "replica-1")
    for _ in range(2900):
        other.hold(large, FREE, 0)
    limiter.hold(large, FREE, 0)
    before = level(store, Kind.REQUESTS, 6000)
    limiter.hold(large, FREE, 0)
    assert (level(store, Kind.REQUESTS, 59, "key:key_b"), before - level(store, Kind.REQUESTS, 6000)) == (58, 1)


def test_an_idle_allotment_is_given_back(limiter, store, clock):
    limiter.hold(limited(requests=600), FREE, 0)
    assert level(store, Kind.REQUESTS, 600) == 589
    limiter.beat()
    assert level(store, Kind.REQUESTS, 600) == 589
    clock.advance(1)
    limiter.beat()
    assert level(store, Kind.REQUESTS, 600) == 600 == 589 + 10 + 1  # what flowed off in that second too


def test_of_an_allotment_that_was_forgotten_for_a_minute_nothing_is_gained(limiter, store, clock):
    limiter.hold(limited(requests=600), FREE, 0)
    clock.advance(60)
    SharedLimiter(store, clock, "replica-1").hold(limited(requests=600).evolve(requests_per_minute=600), FREE, 0)
    before = level(store, Kind.REQUESTS, 600)
    limiter.beat()
    assert level(store, Kind.REQUESTS, 600) == before


def test_tokens_that_were_not_used_are_there_again_and_what_was_used_more_is_charged(exact, store):
    key = limited(tokens=1000)
    exact.hold(key, FREE, 600).settle(100)
    assert level(store, Kind.TOKENS, 1000) == 400
    exact.beat()
    assert level(store, Kind.TOKENS, 1000) == 900
    exact.hold(key, FREE, 100).settle(950)
    refused(exact, key, tokens=100)
    assert level(store, Kind.TOKENS, 1000) == 0


def test_a_request_that_was_not_served_is_as_if_it_had_never_asked(exact, store):
    key = limited(requests=5, tokens=1000, places=1)
    hold = exact.hold(key, FREE, 600)
    hold.release()
    hold.release()
    hold.settle(600)
    exact.beat()
    assert [level(store, Kind.REQUESTS, 5), level(store, Kind.TOKENS, 1000), level(store, Kind.PLACES, 1)] == [
        5, 1000, 1,
    ]  # fmt: skip


def test_a_hold_that_outlasts_its_allotment_is_settled_all_the_same(exact, store, clock):
    key = limited(tokens=1000)
    hold = exact.hold(key, FREE, 100)
    for _ in range(2):
        clock.advance(61)
        exact.beat()
    hold.settle(700)
    exact.beat()
    assert level(store, Kind.TOKENS, 1000) == 400


def test_a_place_is_free_at_once_in_its_replica_and_after_a_beat_in_others(store, clock):
    mine, other = replicas(store, clock, 2)
    key = limited(places=1)
    hold = mine.hold(key, FREE, 0)
    for limiter in (mine, other):
        assert refused(limiter, key).reason == "all of them are under way"
    hold.settle(0)
    mine.hold(key, FREE, 0).settle(0)
    assert refused(other, key).retry_after_s == 1.0
    mine.beat()
    other.hold(key, FREE, 0)
    refused(mine, key)


def test_places_of_a_replica_that_says_nothing_lapse_and_those_of_one_that_beats_do_not(store, clock):
    dead, alive, other = replicas(store, clock, 3)
    key = limited(places=2)
    dead.hold(key, FREE, 0)
    alive.hold(key, FREE, 0)
    for _ in range(3):
        refused(other, key)
        clock.advance(5.1)
        alive.beat()
    other.hold(key, FREE, 0)
    refused(other, key)


def test_who_finds_the_shared_state_away_has_nothing_and_leaves_nothing(limiter, store):
    key = limited(requests=5, places=2)
    store.away = True
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable):
            limiter.hold(key, FREE, 0)
    store.away = False
    for _ in range(2):
        limiter.hold(key, FREE, 0)
    assert refused(limiter, key).what == "requests at a time"


def test_an_owed_token_is_told_after_an_outage_too(exact, store):
    key = limited(tokens=1000)
    exact.hold(key, FREE, 100).settle(300)
    store.away = True
    with pytest.raises(DatabaseUnavailable):
        exact.beat()
    store.away = False
    exact.beat()
    assert level(store, Kind.TOKENS, 1000) == 700


def test_a_limit_that_changes_holds_from_the_next_request_on(limiter, clock):
    for _ in range(5):
        limiter.hold(limited(requests=5), FREE, 0)
    assert refused(limiter, limited(requests=5)).retry_after_s == pytest.approx(12.0)
    assert refused(limiter, limited(requests=50)).retry_after_s == pytest.approx(1.2)
    clock.advance(1.2)
    limiter.hold(limited(requests=50), FREE, 0)
    limiter.hold(limited(), FREE, 0)


def test_a_replica_that_stops_gives_all_back(limiter, store):
    limiter.hold(limited(requests=600, places=64), FREE, 0).release()
    limiter.leave()
    assert (level(store, Kind.REQUESTS, 600), level(store, Kind.PLACES, 64)) == (600, 64)


def test_nothing_is_taken_ahead_that_would_not_do_for_such_a_request(limiter, store):
    limiter.hold(limited("key_a", tokens=6000), FREE, 101)
    limiter.hold(limited("key_b", tokens=6000), FREE, 100)
    assert [level(store, Kind.TOKENS, 6000, f"key:key_{name}") for name in "ab"] == [6000 - 101, 6000 - 200]


def test_what_was_at_hand_for_a_request_that_is_refused_stays_at_hand(limiter, store):
    key, tenant = limited(requests=6000), Tenant(name="acme", concurrent_requests=1)
    only = limiter.hold(key, tenant, 0)
    for _ in range(50):
        refused(limiter, key, tenant)
    only.release()
    limiter.leave()
    assert level(store, Kind.REQUESTS, 6000) == 6000


def test_who_asks_while_a_round_is_under_way_goes_with_the_next_one_which_takes_ahead_once(limiter, store):
    key, others = limited(requests=6000), []
    take_rates = store.take_rates

    def while_others_ask(said):
        store.take_rates = take_rates
        others.extend(threading.Thread(target=limiter.hold, args=(key, FREE, 0)) for _ in range(101 + 5))
        for thread in others:
            thread.start()
        while len(limiter._asking) < len(others):
            pass
        return take_rates(said)

    store.take_rates = while_others_ask
    limiter.hold(key, FREE, 0)
    for thread in others:
        thread.join()
    assert [[demand.ahead for ask in said.asks for demand in ask] for said in store.rounds] == [
        [100], [100, 0, 0, 0, 0, 0],
    ]  # fmt: skip


def test_what_comes_back_while_the_shared_state_is_asked_is_not_refused(limiter, store):
    key = limited(tokens=10)
    first = limiter.hold(key, FREE, 8)
    take_rates = store.take_rates

    def while_it_ends(said):
        first.release()
        return take_rates(said)

    store.take_rates = while_it_ends
    limiter.hold(key, FREE, 10)
    refused(limiter, key, tokens=1)
