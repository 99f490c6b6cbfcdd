"""Which profiles the other side of the engine's socket holds, as the caller's side decides it."""

import pytest

from infra.engines.known_profiles import KnownProfiles
from jobs.ports.engine import RequestProfile

pytestmark = pytest.mark.unit


def named(key: str, **changes) -> RequestProfile:
    return RequestProfile(key=key, kind="chat", **{"sampling": "", **changes})


def used(known: KnownProfiles, *keys: str) -> list[list[str]]:
    return [known.use(named(key)) for key in keys]


def test_those_that_were_not_used_for_longest_are_forgotten_together():
    known = KnownProfiles(most=4)
    assert used(known, "a", "b", "c", "d", "a", "e", "f") == [[], [], [], [], [], ["b", "c"], []]
    assert [key in known for key in "abcdef"] == [True, False, False, True, True, True]


def test_one_that_was_forgotten_may_come_again():
    known = KnownProfiles(most=1)
    assert used(known, "a", "b", "a") == [[], ["a"], ["b"]]


def test_long_ones_crowd_out_others_by_what_they_say():
    known = KnownProfiles(most_chars=100)
    told = [
        known.use(named("a", sampling="x" * 30)),
        known.use(named("b", schema="x" * 30)),
        known.use(named("c", tools="x" * 30)),
        known.use(named("c", tools="x" * 30)),
        known.use(named("d", tools="x" * 30)),
    ]
    assert told == [[], [], [], [], ["a", "b"]]


def test_one_that_is_longer_than_all_may_be_is_known_all_the_same():
    known = KnownProfiles(most_chars=10)
    assert [known.use(named("a")), known.use(named("b", schema="x" * 11)), "b" in known] == [[], ["a"], True]


def test_a_new_engine_knows_nothing():
    known = KnownProfiles(most_chars=10)
    known.use(named("a", schema="x" * 10))
    known.clear()
    assert ("a" in known, len(known), known.use(named("b", schema="x" * 10))) == (False, 0, [])
