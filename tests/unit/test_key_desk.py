"""jobs/keys.py: who may make, replace and end which keys, over the keys of a dict."""

import pytest

from jobs.errors import BadInput, Conflict, NotAllowed, NotFound
from jobs.keys import KEY_BYTES, KeyDesk, KeyRequest
from jobs.tenancy import MEMBER_SCOPES, RequestLimits, Role, Scope
from tests.support.filing import a_key

pytestmark = pytest.mark.unit

ALL, SOME = frozenset(Scope), frozenset({Scope.KEYS, Scope.JOBS_READ})
BITS = bytes(KEY_BYTES)


class Book:
    """The methods of a store that a desk needs."""

    def __init__(self, *keys):
        self.all = {key.id: key for key in keys}

    def now(self):
        return 10.0

    def key(self, key_id, tenant=None):
        if key_id not in self.all or tenant not in {None, self.all[key_id].tenant}:
            raise NotFound(kind="API key", name=key_id, hint="Look.")
        return self.all[key_id]

    def add_key(self, key, actor):
        if key.id in self.all:
            raise Conflict(reason="taken")
        return self.all.setdefault(key.id, key)

    def replace_key(self, key, *, overlap_s, actor):
        self.add_key(key, actor)
        self.all[key.replaces] = self.all[key.replaces].evolve(revoked_at=10.0 + overlap_s)
        return key

    def end_key(self, key_id, *, tenant, at, actor):
        self.all[key_id] = self.key(key_id, tenant).evolve(revoked_at=10.0)
        return self.all[key_id]


def desk(*keys, role=None, scopes=ALL):
    """role: of the key that asks; None for the local command line."""
    by = None if role is None else a_key("key_by", role=role, scopes=scopes)
    book = Book(*keys)
    return KeyDesk(store=book, now=book.now, actor="me", by=by)


def make(at, tenant="default", **asked):
    return at.make("key_new", BITS, KeyRequest(**asked), tenant=tenant).record


def refusal(act):
    with pytest.raises((NotAllowed, BadInput, NotFound)) as caught:
        act()
    return caught.value.sentence


def test_a_key_is_made_as_it_was_asked_for():
    made = make(desk(), tenant="acme", name="n", project="p", role=Role.ADMIN, scopes=SOME, expires_s=5.0)
    assert made == a_key(
        "key_new", tenant="acme", name="n", project="p", role=Role.ADMIN, scopes=SOME, created_at=10.0, expires_at=15.0,
        shown=made.shown, digest=made.digest,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("by", "role", "scopes"),
    [
        ({}, Role.MEMBER, MEMBER_SCOPES),
        ({}, Role.OPERATOR, ALL),
        ({"role": Role.ADMIN}, Role.MEMBER, MEMBER_SCOPES),
        ({"role": Role.ADMIN}, Role.ADMIN, ALL),
        ({"role": Role.ADMIN, "scopes": SOME}, Role.ADMIN, SOME),
        ({"role": Role.ADMIN, "scopes": SOME}, Role.MEMBER, frozenset({Scope.JOBS_READ})),
    ],
)
def test_a_key_may_by_default_all_that_its_role_and_whoever_asks_may(by, role, scopes):
    assert make(desk(**by), role=role).scopes == scopes


@pytest.mark.parametrize(
    ("by", "asked", "sentence"),
    [
        (
            {"role": Role.ADMIN},
            {"role": Role.OPERATOR},
            "This API key may not do that: its role is admin, and the keys of an operator are none of its business.",
        ),
        (
            {"role": Role.ADMIN, "scopes": SOME},
            {"scopes": {Scope.JOBS_READ, Scope.FILES_READ}},
            "This API key may not do that: it lacks the scope files.read, and hands on no more than it has.",
        ),
        (
            {"role": Role.OPERATOR, "scopes": frozenset({Scope.KEYS})},
            {},
            "This API key may not do that: it has no scope that a member may have.",
        ),
        ({}, {"scopes": {Scope.KEYS}}, "scopes: keys needs the role admin or operator."),
    ],
)
def test_nobody_hands_on_more_than_it_has(by, asked, sentence):
    at = desk(**by)
    asked = {**asked, "scopes": frozenset(asked.get("scopes", ()))}
    assert (refusal(lambda: make(at, **asked)), at.store.all) == (sentence, {})


OPERATORS = a_key("key_op", role=Role.OPERATOR, scopes=SOME)
WIDER = a_key("key_wide", role=Role.MEMBER, scopes=MEMBER_SCOPES)
OTHERS = a_key("key_other", tenant="acme")


@pytest.mark.parametrize("old", [OPERATORS, WIDER, OTHERS])
def test_nobody_gets_more_than_it_has_by_a_key_in_another_s_place(old):
    at = desk(old, role=Role.ADMIN, scopes=SOME)
    with pytest.raises((NotAllowed, NotFound)):
        at.rotate(old.id, "key_new", BITS, overlap_s=0.0)
    assert at.store.all == {old.id: old}


def test_an_admin_ends_keys_of_its_tenant_s_with_other_scopes_but_of_no_larger_role():
    at = desk(OPERATORS, WIDER, OTHERS, role=Role.ADMIN, scopes=SOME)
    found = [refusal(lambda key=key: at.revoke(key.id)) for key in (OPERATORS, OTHERS)]
    assert found == [
        "This API key may not do that: its role is admin, and the keys of an operator are none of its business.",
        "There is no API key named key_other. Look.",
    ]
    assert (at.revoke(WIDER.id), at.store.all) == (
        WIDER.evolve(revoked_at=10.0),
        {OPERATORS.id: OPERATORS, WIDER.id: WIDER.evolve(revoked_at=10.0), OTHERS.id: OTHERS},
    )


def test_the_local_command_line_manages_all_keys_of_all_tenants():
    at = desk(OPERATORS, OTHERS)
    made = at.rotate(OTHERS.id, "key_new", BITS, overlap_s=60.0).record
    assert (made.tenant, made.replaces, at.store.all[OTHERS.id].revoked_at) == ("acme", OTHERS.id, 70.0)
    assert at.revoke(OPERATORS.id).revoked_at == 10.0


def test_the_key_itself_is_not_in_what_is_printed_of_it():
    made = desk().make("key_new", BITS, KeyRequest(), tenant="default")
    assert (made.text[:3], made.text in repr(made)) == ("nm_", False)


def test_a_request_that_comes_again_makes_no_second_key_and_knows_the_first_one_s_text_no_more():
    at, other = desk(WIDER), bytes(range(KEY_BYTES))
    first = at.make("key_new", BITS, KeyRequest(), tenant="default")
    again = at.make("key_new", other, KeyRequest(), tenant="default")
    assert (again.record, again.text) == (first.record, "")
    with pytest.raises(Conflict):
        at.make("key_new", other, KeyRequest(), tenant="acme")


def test_a_key_that_a_limited_one_makes_is_limited_as_it_is_or_more():
    asks = a_key("key_by", role=Role.ADMIN, scopes=ALL, requests_per_minute=60, concurrent_requests=4)
    book = Book()
    at = KeyDesk(store=book, now=book.now, actor="me", by=asks)
    wanted = RequestLimits(requests_per_minute=600, tokens_per_minute=1000)
    assert RequestLimits.of(make(at, limits=wanted)) == RequestLimits(
        requests_per_minute=60, tokens_per_minute=1000, concurrent_requests=4
    )
    assert RequestLimits.of(make(desk(), limits=wanted)) == wanted
