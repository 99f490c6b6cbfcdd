"""API keys: what they look like, what is kept of them, what a successor may do, and when a key opens."""

import re

import pytest

from jobs.keys import KEY_BYTES, new_key, successor
from jobs.tenancy import Role, Scope, digest_of
from tests.support.filing import a_key

pytestmark = pytest.mark.unit


def test_a_key_has_160_random_bits_and_its_record_has_none_of_the_rest():
    random = bytes(range(KEY_BYTES))
    (text, key), (other, _) = (new_key("key_b", bits, tenant="acme") for bits in (random, random[::-1]))
    assert re.fullmatch(r"nm_[a-z2-7]{32}", text)
    assert (len(random) * 8, text != other) == (160, True)
    assert (key.id, key.tenant, key.shown, key.digest) == ("key_b", "acme", text[:10], digest_of(text))
    assert text[10:] not in repr(key)


def test_a_successor_may_do_the_same_for_as_long():
    old = a_key(
        name="n", project="p", role=Role.ADMIN, scopes=frozenset({Scope.KEYS}), created_at=5.0, expires_at=65.0,
        revoked_at=50.0, requests_per_minute=7,
    )  # fmt: skip
    text, new = successor(old, "key_b", bytes(KEY_BYTES), now=40.0)
    assert new == old.evolve(
        id="key_b", digest=digest_of(text), shown=text[:10], created_at=40.0, expires_at=100.0, revoked_at=None,
        replaces=old.id,
    )  # fmt: skip
    assert successor(old.evolve(expires_at=None), "key_b", bytes(KEY_BYTES), now=40.0)[1].expires_at is None


@pytest.mark.parametrize(
    ("ends", "opens"),
    [
        ({}, True),
        ({"expires_at": 10.0}, False),
        ({"expires_at": 10.1}, True),
        ({"revoked_at": 10.0}, False),
        ({"expires_at": 99.0, "revoked_at": 9.0}, False),
    ],
)
def test_a_key_opens_until_its_earlier_end(ends, opens):
    assert a_key(**ends).opens(10.0) is opens


def test_keys_are_managed_only_by_a_role_that_may():
    scopes = frozenset({Scope.KEYS})
    assert [a_key(role=role, scopes=scopes).may(Scope.KEYS) for role in Role] == [False, True, True]
    assert [a_key(role=Role.OPERATOR).may(scope) for scope in (Scope.KEYS, Scope.JOBS_READ)] == [False, True]
