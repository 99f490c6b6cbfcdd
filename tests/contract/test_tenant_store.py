"""The tenancy port: one body over every adapter."""

import pytest

from jobs.errors import Conflict, NotFound
from jobs.keys import KEY_BYTES, KeyDesk, KeyRequest
from jobs.tenancy import MEMBER_SCOPES, Alias, AuditEvent, Grant, RequestLimits, Role, Scope, Tenant
from tests.factories import PRICE
from tests.support.filing import a_key, twice

pytestmark = pytest.mark.contract

ACTOR = "cli:ann"
UNKNOWN = "There is no tenant named acme. Add it: nightmill tenants add acme"


def log(store, **which):
    """(action, tenant, subject, detail) of the audit log, the oldest first, without the default tenant's making."""
    events = [e for e in reversed(store.audit(**which)) if e.actor != "nightmill"]
    assert {e.actor for e in events} <= {ACTOR}
    return [(e.action, e.tenant, e.subject, e.detail) for e in events]


# ---- tenants ----------------------------------------------------------------------------------------


def test_the_default_tenant_is_there_before_anybody_makes_it(store, clock):
    default = Tenant(name="default", created_at=clock.now())
    assert (store.tenant("default"), store.tenants()) == (default, [default])
    assert [(e.action, e.actor) for e in store.audit()] == [("tenant.created", "nightmill")]


def test_a_tenant_comes_back_as_it_was_put_and_each_change_is_noted_once(store, clock):
    made = store.put_tenant(Tenant(name="acme", title="Acme"), ACTOR)
    assert made == Tenant(name="acme", title="Acme", created_at=clock.now()) == store.tenant("acme")
    clock.advance(10)
    limited = store.put_tenant(made.evolve(enqueued_tokens_limit=500, created_at=0.0), ACTOR)
    assert limited == made.evolve(enqueued_tokens_limit=500) == store.tenant("acme")
    disabled = store.put_tenant(limited.evolve(disabled_at=0.0), ACTOR)
    assert disabled == limited.evolve(disabled_at=clock.now())
    clock.advance(10)
    assert store.put_tenant(limited.evolve(disabled_at=0.0), ACTOR) == disabled == store.tenant("acme")
    assert store.put_tenant(limited, ACTOR) == limited == store.tenant("acme")
    assert log(store) == [
        ("tenant.created", "acme", "acme", "title=Acme"),
        ("tenant.changed", "acme", "acme", "enqueued_tokens_limit=500"),
        ("tenant.changed", "acme", "acme", f"disabled_at={disabled.disabled_at}"),
        ("tenant.changed", "acme", "acme", "disabled_at=None"),
    ]


def test_tenants_are_listed_by_name(store):
    for name in ("zoo", "Acme", "acme"):
        store.put_tenant(Tenant(name=name), ACTOR)
    assert [tenant.name for tenant in store.tenants()] == ["Acme", "acme", "default", "zoo"]


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.tenant("acme"),
        lambda s: s.add_key(a_key(tenant="acme"), ACTOR),
        lambda s: s.put_grant(Grant(tenant="acme", prefix="s3://b/"), ACTOR),
        lambda s: s.put_alias(Alias(alias="a", model="m", tenant="acme"), ACTOR),
    ],
)
def test_what_is_for_an_unknown_tenant_is_refused_and_not_noted(store, act):
    with pytest.raises(NotFound) as caught:
        act(store)
    assert (caught.value.sentence, log(store), store.keys(), store.aliases()) == (UNKNOWN, [], [], [])


# ---- keys -------------------------------------------------------------------------------------------


def test_a_key_comes_back_as_it_was_added_by_its_digest_and_by_its_id(store, clock):
    key = a_key(
        name="nightly",
        project="web",
        role=Role.ADMIN,
        scopes=frozenset({Scope.KEYS, Scope.FILES_READ}),
        expires_at=99.0,
    )
    added = store.add_key(key.evolve(created_at=0.0), ACTOR)
    assert added == key.evolve(created_at=clock.now())
    assert store.key_by_digest(key.digest) == (added, store.tenant("default"))
    assert (store.key(key.id), store.key(key.id, "default"), store.keys("default")) == (added, added, [added])
    assert log(store) == [
        ("key.created", "default", "key_a", "nm_abcdefg… role=admin scopes=files.read,keys expires_at=99.0")
    ]


def test_an_unknown_digest_is_nobody_s(store):
    assert store.key_by_digest("c0ffee") is None


@pytest.mark.parametrize("taken", [{}, {"key_id": "key_b", "digest": a_key().digest}])
def test_an_id_and_a_digest_are_taken_once(store, taken):
    store.add_key(a_key(), ACTOR)
    other = a_key(**{"digest": "other", **taken})
    with pytest.raises(Conflict):
        store.add_key(other, ACTOR)
    assert (store.keys(), len(log(store))) == ([a_key()], 1)


def test_keys_are_listed_newest_first_and_by_tenant(store):
    store.put_tenant(Tenant(name="acme"), ACTOR)
    for number, tenant in enumerate(["acme", "default", "acme"]):
        store.add_key(a_key(f"key_{number}", tenant=tenant, created_at=1.0 + number), ACTOR)
    listed = store.keys()
    assert [key.id for key in listed] == ["key_2", "key_1", "key_0"]
    assert [key.id for key in store.keys("acme")] == ["key_2", "key_0"]


def test_keys_are_listed_by_cursor_inside_their_tenant(store):
    store.put_tenant(Tenant(name="acme"), ACTOR)
    for number in range(5):  # all of one moment
        store.add_key(a_key(f"key_{number}", digest=f"d{number}"), ACTOR)
    store.add_key(a_key("key_x", tenant="acme"), ACTOR)
    pages = [store.keys("default", limit=2), store.keys("default", after="key_3", limit=2), store.keys(after="key_1")]
    assert [[key.id for key in page] for page in pages] == [["key_4", "key_3"], ["key_2", "key_1"], ["key_0"]]
    for after in ("key_x", "key_no"):
        with pytest.raises(NotFound):
            store.keys("default", after=after)


def test_a_key_s_name_is_kept_as_far_as_a_database_can(store):
    store.add_key(a_key(name="a\0b", project="\ud800"), ACTOR)
    listed = store.keys()
    assert [(key.name, key.project) for key in listed] == [("a b", "?")]


def test_a_request_that_died_after_its_key_was_made_makes_no_second_one(store):
    store.add_key(a_key(), ACTOR)
    desk, bits = KeyDesk(store=store, now=store.now, actor=ACTOR), [bytes([n] * KEY_BYTES) for n in range(4)]
    made = [desk.make("key_b", random, KeyRequest(), tenant="default") for random in bits[:2]]
    made += [desk.rotate("key_a", "key_c", random, overlap_s=0.0) for random in bits[2:]]
    assert [(one.record.id, bool(one.text)) for one in made] == [
        ("key_b", True), ("key_b", False), ("key_c", True), ("key_c", False),
    ]  # fmt: skip
    listed = store.keys()
    assert sorted(key.id for key in listed) == ["key_a", "key_b", "key_c"]


def test_a_key_ends_when_it_is_told_to_and_an_earlier_end_stays(store, clock):
    key = store.add_key(a_key(), ACTOR)
    ended = store.end_key(key.id, tenant="default", at=clock.now() + 60, actor=ACTOR)
    assert ended == key.evolve(revoked_at=clock.now() + 60) == store.key(key.id)
    assert store.end_key(key.id, tenant=None, at=clock.now() + 90, actor=ACTOR) == ended
    assert store.end_key(key.id, tenant=None, at=None, actor=ACTOR).revoked_at == clock.now()
    assert [action for action, *_ in log(store)] == ["key.created", "key.revoked", "key.revoked"]


def test_limits_of_requests_are_kept_with_tenant_and_key_and_each_change_is_noted_once(store):
    limits = RequestLimits(requests_per_minute=60, concurrent_requests=4)
    tenant = store.put_tenant(Tenant(name="acme", **limits.fields), ACTOR)
    added = store.add_key(a_key(tenant="acme", tokens_per_minute=500), ACTOR)
    changed = [store.limit_key("key_a", limits, tenant=who, actor=ACTOR) for who in (None, "acme")]
    assert changed == [added.evolve(**limits.fields)] * 2
    assert store.key_by_digest(added.digest) == (changed[0], tenant)
    with pytest.raises(NotFound):
        store.limit_key("key_a", limits, tenant="default", actor=ACTOR)
    assert [(action, detail) for action, _, _, detail in log(store)] == [
        ("tenant.created", "requests_per_minute=60, concurrent_requests=4"),
        ("key.created", f"nm_abcdefg… role=member scopes={','.join(sorted(MEMBER_SCOPES))} tokens_per_minute=500"),
        ("key.limited", "nm_abcdefg… requests_per_minute=60 tokens_per_minute=None concurrent_requests=4"),
    ]


@pytest.mark.parametrize(("key_id", "tenant"), [("key_x", None), ("key_x", "default"), ("key_a", "acme")])
def test_another_tenant_s_key_is_told_in_the_same_words_as_one_that_never_was(store, key_id, tenant):
    store.add_key(a_key(), ACTOR)
    words = f"There is no API key named {key_id}. List the keys there are: nightmill keys list"
    for act in (lambda: store.key(key_id, tenant), lambda: store.end_key(key_id, tenant=tenant, at=None, actor=ACTOR)):
        with pytest.raises(NotFound) as caught:
            act()
        assert caught.value.sentence == words
    assert store.key("key_a").revoked_at is None


def test_a_replaced_key_ends_after_the_overlap(store, clock):
    old = store.add_key(a_key(), ACTOR)
    new = store.replace_key(a_key("key_b", replaces="key_a"), overlap_s=60.0, actor=ACTOR)
    assert (new, store.key("key_a")) == (a_key("key_b", replaces="key_a"), old.evolve(revoked_at=clock.now() + 60))
    assert [(action, subject) for action, _, subject, _ in log(store)] == [
        ("key.created", "key_a"), ("key.created", "key_b"), ("key.revoked", "key_a"),
    ]  # fmt: skip


def test_a_key_that_has_ended_is_not_replaced(store):
    store.add_key(a_key(), ACTOR)
    store.end_key("key_a", tenant=None, at=None, actor=ACTOR)
    with pytest.raises(Conflict, match="key key_a has ended already"):
        store.replace_key(a_key("key_b", replaces="key_a"), overlap_s=60.0, actor=ACTOR)
    store.put_tenant(Tenant(name="acme"), ACTOR)
    with pytest.raises(NotFound):
        store.replace_key(a_key("key_b", replaces="key_a", tenant="acme"), overlap_s=60.0, actor=ACTOR)
    listed = store.keys()
    assert [key.id for key in listed] == ["key_a"]


# ---- grants and aliases -----------------------------------------------------------------------------


def test_a_grant_is_set_changed_and_removed_and_each_is_noted(store, clock):
    reads = Grant(tenant="default", prefix="s3://b/in/", created_at=clock.now())
    for grant in (reads, reads, reads.evolve(write=True), Grant(tenant="default", prefix="s3://a/", created_at=1.0)):
        store.put_grant(grant.evolve(created_at=0.0 if grant.created_at > 1 else 1.0), ACTOR)
    assert [(g.prefix, g.write, g.created_at) for g in store.grants("default")] == [
        ("s3://a/", False, 1.0), ("s3://b/in/", True, clock.now()),
    ]  # fmt: skip
    removed = [store.remove_grant("default", prefix, ACTOR) for prefix in ("s3://b/in/", "s3://b/in/", "s3://c/")]
    assert (removed, [g.prefix for g in store.grants("default")], store.grants("acme")) == (
        [True, False, False], ["s3://a/"], [],
    )  # fmt: skip
    assert [(action, subject, detail) for action, _, subject, detail in log(store)] == [
        ("grant.set", "s3://b/in/", "read"),
        ("grant.set", "s3://b/in/", "read and write"),
        ("grant.set", "s3://a/", "read"),
        ("grant.removed", "s3://b/in/", ""),
    ]


def test_a_tenant_sees_its_own_aliases_and_those_for_all(store):
    store.put_tenant(Tenant(name="acme"), ACTOR)
    store.put_tenant(Tenant(name="zoo"), ACTOR)
    mine = [Alias(alias="gpt", model="m1"), Alias(alias="gpt", model="m2", tenant="acme")]
    for alias in (*mine, mine[0], Alias(alias="x", model="m3", tenant="zoo"), mine[1].evolve(model="m4")):
        store.put_alias(alias, ACTOR)
    assert store.aliases("acme") == [mine[0], mine[1].evolve(model="m4")]
    assert [alias.model for alias in store.aliases()] == ["m1", "m4", "m3"]
    assert [store.remove_alias("gpt", tenant, ACTOR) for tenant in ("acme", "acme", "nobody")] == [True, False, False]
    assert store.aliases("acme") == [mine[0]]
    assert [event for event in log(store) if "alias" in event[0]] == [
        ("alias.set", "", "gpt", "m1"),
        ("alias.set", "acme", "gpt", "m2"),
        ("alias.set", "zoo", "x", "m3"),
        ("alias.set", "acme", "gpt", "m4"),
        ("alias.removed", "acme", "gpt", ""),
    ]


# ---- the audit log ----------------------------------------------------------------------------------


def test_the_log_is_read_newest_first_by_tenant_and_so_far(store, clock):
    for number, tenant in enumerate(["acme", "zoo", "acme"]):
        store.note(AuditEvent(action="job.read", actor="key_o", tenant=tenant, subject=f"job-{number}"))
    last = store.audit(limit=1)[0]
    assert last == AuditEvent(
        action="job.read", actor="key_o", tenant="acme", subject="job-2", at=clock.now(), id=last.id
    )
    assert [event.subject for event in store.audit()] == ["job-2", "job-1", "job-0"]
    assert [event.subject for event in store.audit(tenant="acme")] == ["job-2", "job-0"]


def test_a_change_whose_commit_was_not_answered_is_made_and_noted_once(store, clock):
    twice(store)
    store.put_tenant(Tenant(name="acme"), ACTOR)
    store.put_tenant(Tenant(name="acme", disabled_at=0.0), ACTOR)
    added = store.add_key(a_key(tenant="acme"), ACTOR)
    replaced = store.replace_key(a_key("key_b", tenant="acme", replaces="key_a"), overlap_s=60.0, actor=ACTOR)
    ended = store.end_key("key_b", tenant="acme", at=None, actor=ACTOR)
    store.put_grant(Grant(tenant="acme", prefix="s3://b/"), ACTOR)
    store.put_alias(Alias(alias="gpt", model="m", tenant="acme"), ACTOR)
    gone = store.remove_grant("acme", "s3://b/", ACTOR), store.remove_alias("gpt", "acme", ACTOR)
    assert (added.id, replaced.id, ended.revoked_at, gone) == ("key_a", "key_b", clock.now(), (True, True))
    assert [event[0] for event in log(store)] == [
        "tenant.created", "tenant.changed", "key.created", "key.created", "key.revoked", "key.revoked",
        "grant.set", "alias.set", "grant.removed", "alias.removed",
    ]  # fmt: skip


def test_a_new_price_is_noted_and_the_same_again_is_not(store):
    for price in (PRICE, PRICE, PRICE.evolve(version="v2", input_micro=0)):
        twice(store).set_price(price, ACTOR)
    assert [event for event in log(store) if event[1] == ""] == [
        ("price.set", "", "fake", "0.15/0.075/0.6 USD, version v1"),
        ("price.set", "", "fake", "0/0.075/0.6 USD, version v2"),
    ]
