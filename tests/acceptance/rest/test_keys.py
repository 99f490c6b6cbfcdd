"""A tenant's admin makes, replaces and ends its tenant's keys over HTTP, within what its own key may."""

from itertools import count

import pytest

from infra.sql.tables_filing import replays
from jobs.tenancy import MEMBER_SCOPES, Role, Scope, digest_of

pytestmark = pytest.mark.acceptance

NUMBERS = count()
ALL = frozenset(Scope)


@pytest.fixture
def tenant():
    return f"keys-{next(NUMBERS)}"


@pytest.fixture
def admin(api, tenant):
    return api.http(api.key(tenant, role=Role.ADMIN, scopes=ALL))


def post(client, path, key=None, **body):
    return client.post(path, json=body, headers={"idempotency-key": key} if key else {})


def ids(answer):
    return [key["id"] for key in answer.json()["data"]]


def opens(api, text):
    return api.http(text).get("/v1/models").status_code


def everywhere(api):
    """What is kept and logged."""
    home = api.home.settings.home
    files = [home / "nightmill.db", home / "nightmill.db-wal", api.home.settings.log_file]
    return b"".join(file.read_bytes() for file in files)


def test_a_key_that_was_revoked_elsewhere_makes_nothing_that_stays_also_where_it_is_remembered(api, admin):
    made = post(admin, "/v1/keys", role="admin", scopes=["keys", "jobs.read"]).json()
    before = opens(api, made["key"])
    api.home.store.end_key(made["id"], tenant=None, at=None, actor="test")
    paths = ("/v1/keys", "/v1/webhook_endpoints")
    assert (before, [post(api.http(made["key"]), path).status_code for path in paths]) == (200, [401, 401])


def test_nobody_without_a_key_makes_the_api_forget_the_others(api, admin):
    admin.get("/v1/keys")
    known = api.served._app.state.known._callers._known
    before = dict(known)
    refused = post(api.http("nm_unknown"), "/v1/keys").status_code
    assert (refused, dict(known) == before, len(before) > 0) == (401, True, True)


def test_a_key_is_made_shown_once_and_opens_what_it_was_made_for(api, admin, tenant):
    asked = {"name": "nightly", "project": "web", "scopes": ["jobs.read"], "expires_s": 60}
    answer = post(admin, "/v1/keys", **asked)
    made = answer.json()
    text = made["key"]
    record, _ = api.home.store.key_by_digest(digest_of(text))
    shown = {**made, "key": None}
    assert made == {
        "id": record.id, "object": "api_key", "key": text, "shown": text[:10], "name": "nightly", "project": "web",
        "role": "member", "scopes": ["jobs.read"], "requests_per_minute": None, "tokens_per_minute": None,
        "concurrent_requests": None, "created_at": record.created_at,
        "expires_at": record.created_at + 60, "revoked_at": None, "replaces": None,
    }  # fmt: skip
    assert (record.tenant, answer.headers["cache-control"]) == (tenant, "no-store")
    assert (admin.get(f"/v1/keys/{record.id}").json(), admin.get("/v1/keys").json()["data"][0]) == (shown, shown)
    statuses = [api.http(text).get(f"/v1/{path}").status_code for path in ("jobs", "files", "keys")]
    assert (statuses, text[10:].encode() in everywhere(api)) == ([200, 403, 403], False)


def test_a_key_may_by_default_all_that_a_member_may(admin):
    made = post(admin, "/v1/keys").json()
    assert (made["role"], made["scopes"]) == ("member", sorted(MEMBER_SCOPES))


def test_a_key_has_limits_of_its_own_and_a_limited_key_makes_no_wider_one(api, admin):
    limited = post(
        admin, "/v1/keys", role="admin", scopes=["keys"], requests_per_minute=60, concurrent_requests=4
    ).json()
    made = post(api.http(limited["key"]), "/v1/keys", scopes=["keys"], role="admin", concurrent_requests=9).json()
    names = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
    assert [[key[name] for name in names] for key in (limited, made)] == [[60, None, 4]] * 2


def test_keys_are_listed_by_cursor_the_newest_first(admin):
    made = [post(admin, "/v1/keys").json()["id"] for _ in range(4)][::-1]
    first = admin.get("/v1/keys", params={"limit": 3})
    rest = admin.get("/v1/keys", params={"limit": 3, "after": first.json()["last_id"]})
    assert (ids(first), ids(rest)[:1], len(ids(rest))) == (made[:3], made[3:], 2)
    assert (first.json()["has_more"], rest.json()["has_more"]) == (True, False)


def test_a_key_is_replaced_and_stays_good_for_the_overlap(api, admin):
    old = post(admin, "/v1/keys", name="nightly", scopes=["jobs.read"]).json()
    new = post(admin, f"/v1/keys/{old['id']}/rotate", overlap_s=60).json()
    ends = admin.get(f"/v1/keys/{old['id']}").json()["revoked_at"]
    assert (new["replaces"], new["name"], new["scopes"]) == (old["id"], "nightly", ["jobs.read"])
    assert 59 < ends - new["created_at"] < 90
    assert [opens(api, one["key"]) for one in (old, new)] == [200, 200]
    at_once = post(admin, f"/v1/keys/{new['id']}/rotate", overlap_s=0).json()
    assert [opens(api, one["key"]) for one in (new, at_once)] == [401, 200]
    again = post(admin, f"/v1/keys/{new['id']}/rotate")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")


def test_a_revoked_key_opens_nothing_and_stays_in_the_list(api, admin):
    made = post(admin, "/v1/keys").json()
    before = opens(api, made["key"])
    ended = post(admin, f"/v1/keys/{made['id']}/revoke").json()
    after = opens(api, made["key"])
    twice = post(admin, f"/v1/keys/{made['id']}/revoke").json()
    assert (before, after, ended["revoked_at"] is not None, twice) == (200, 401, True, ended)
    assert admin.get("/v1/keys").json()["data"][0] == ended


def test_all_of_it_is_in_the_audit_log_under_the_key_that_asked(api, tenant):
    text = api.key(tenant, role=Role.ADMIN, scopes=ALL)
    actor, client = api.home.store.key_by_digest(digest_of(text))[0].id, api.http(text)
    old = post(client, "/v1/keys").json()["id"]
    new = post(client, f"/v1/keys/{old}/rotate").json()["id"]
    post(client, f"/v1/keys/{new}/revoke")
    events = [event for event in reversed(api.home.store.audit(tenant=tenant)) if event.actor == actor]
    assert [(event.action, event.subject) for event in events] == [
        ("key.created", old),
        ("key.created", new),
        ("key.revoked", old),
        ("key.revoked", new),
    ]


@pytest.mark.parametrize(
    ("role", "scopes", "asked", "status"),
    [
        (Role.MEMBER, MEMBER_SCOPES, {}, 403),
        (Role.MEMBER, ALL, {}, 403),
        (Role.ADMIN, MEMBER_SCOPES, {}, 403),
        (Role.ADMIN, ALL, {"role": "operator"}, 403),
        (Role.ADMIN, {Scope.KEYS, Scope.JOBS_READ}, {"scopes": ["files.read"]}, 403),
        (Role.ADMIN, ALL, {"role": "member", "scopes": ["keys"]}, 400),
        (Role.ADMIN, {Scope.KEYS, Scope.JOBS_READ}, {"role": "admin"}, 200),
        (Role.OPERATOR, ALL, {"role": "operator"}, 200),
    ],
)
def test_nobody_makes_a_key_that_may_more_than_its_own(api, tenant, role, scopes, asked, status):
    client = api.http(api.key(tenant, role=role, scopes=frozenset(scopes)))
    answer = post(client, "/v1/keys", **asked)
    may = [key.scopes <= scopes for key in api.home.store.keys(tenant)]
    assert (answer.status_code, may) == (status, [True, True] if status == 200 else [True])


def test_an_operator_s_key_is_not_replaced_or_ended_by_an_admin_and_manages_its_own_tenant_s_alone(api, admin, tenant):
    text = api.key(tenant, role=Role.OPERATOR, scopes=ALL)
    operators = api.home.store.key_by_digest(digest_of(text))[0].id
    elsewhere = api.home.store.key_by_digest(digest_of(api.key(f"{tenant}-b")))[0].id
    tried = [post(admin, f"/v1/keys/{operators}/{action}").status_code for action in ("rotate", "revoke")]
    tried += [post(api.http(text), f"/v1/keys/{elsewhere}/{action}").status_code for action in ("rotate", "revoke")]
    assert (tried, opens(api, text)) == ([403, 403, 404, 404], 200)


@pytest.mark.parametrize("action", ["", "/rotate"])
def test_a_repeated_request_makes_one_key_and_does_not_show_it_again(api, admin, action):
    path = f"/v1/keys/{post(admin, '/v1/keys').json()['id']}{action}" if action else "/v1/keys"
    before = ids(admin.get("/v1/keys"))
    first, second = (post(admin, path, key=f"k{action}") for _ in range(2))
    assert (second.json(), second.headers["idempotent-replayed"]) == ({**first.json(), "key": None}, "true")
    assert ids(admin.get("/v1/keys")) == [first.json()["id"], *before]
    assert first.json()["key"][10:].encode() not in everywhere(api)


@pytest.mark.parametrize("action", ["", "/rotate"])
def test_a_request_that_died_before_it_was_answered_ends_with_one_key_when_it_comes_again(api, admin, tenant, action):
    path = f"/v1/keys/{post(admin, '/v1/keys').json()['id']}{action}" if action else "/v1/keys"
    first = post(admin, path, key="died").json()
    mine = replays.update().where(replays.c.tenant == tenant)
    api.home.store._db.write(lambda c: c.execute(mine.values(status=None, body=None, begun_at=1.0)).rowcount)
    before = ids(admin.get("/v1/keys"))
    assert post(admin, path, key="died").json() == {**first, "key": None}
    assert ids(admin.get("/v1/keys")) == before


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "a\x1b[31m"}, "name"),
        ({"project": "a\u0000"}, "project"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes.0"),
        ({"role": "king"}, "role"),
        ({"expires_s": 0}, "expires_s"),
        ({"expires_s": 1e300}, "expires_s"),
        ({"tenant": "default"}, "tenant"),
    ],
)
def test_what_no_key_can_be_is_refused_by_name(admin, body, param):
    answer = post(admin, "/v1/keys", **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
