"""Tenant B learns nothing of what is A's: for every route, with every kind of id of A's."""

import re

import pytest

from api.rest.app import ROUTERS
from jobs.tenancy import Alias, Role, Scope, digest_of
from tests.support.api import some_lines, until
from tests.support.hooks import a_webhook

pytestmark = pytest.mark.acceptance

ROUTES = sorted(
    (method, route.path) for router in ROUTERS for route in router.routes for method in route.methods - {"HEAD"}
)
IDS = re.compile(r"\{(\w+?)(:path)?\}")
CREATE = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}

# What a route that names a thing answers for another tenant's: always as for one that never was.
BY_PATH = {
    ("GET", "/v1/files/{file_id}"): {},
    ("GET", "/v1/files/{file_id}/content"): {},
    ("DELETE", "/v1/files/{file_id}"): {},
    ("GET", "/v1/batches/{batch_id}"): {},
    ("POST", "/v1/batches/{batch_id}/cancel"): {},
    ("GET", "/v1/models/{model:path}"): {},
    ("GET", "/v1/jobs/{job_id}"): {},
    ("POST", "/v1/jobs/{job_id}/cancel"): {},
    ("POST", "/v1/jobs/{job_id}/pause"): {},
    ("POST", "/v1/jobs/{job_id}/resume"): {},
    ("POST", "/v1/jobs/{job_id}/priority"): {"json": {"priority": "high"}},
    ("POST", "/v1/jobs/{job_id}/retry"): {"json": {}},
    ("GET", "/v1/jobs/{job_id}/rows"): {},
    ("GET", "/v1/jobs/{job_id}/lines"): {},
    ("GET", "/v1/jobs/{job_id}/results"): {},
    ("GET", "/v1/jobs/{job_id}/results/{name}"): {},
    ("GET", "/v1/jobs/{job_id}/events"): {},
    ("GET", "/v1/webhook_endpoints/{webhook_id}"): {},
    ("DELETE", "/v1/webhook_endpoints/{webhook_id}"): {},
    ("GET", "/v1/keys/{key_id}"): {},
    ("POST", "/v1/keys/{key_id}/rotate"): {"json": {}},
    ("POST", "/v1/keys/{key_id}/revoke"): {},
}
# Routes that name a thing elsewhere: in the query or the body.
BY_OTHER = {
    ("GET", "/v1/files"): [{"params": {"after": "FILE"}}],
    ("GET", "/v1/batches"): [{"params": {"after": "BATCH"}}],
    ("GET", "/v1/jobs"): [{"params": {"after": "JOB"}}],
    ("GET", "/v1/keys"): [{"params": {"after": "KEY"}}],
    ("POST", "/v1/jobs"): [
        {"json": {"model": "fake", "input_file_id": "FILE"}},
        {"json": {"model": "MODEL", "rows": [{"a": 1}], "prompt": "{{ a }}"}},
    ],
    ("POST", "/v1/jobs/quote"): [{"json": {"model": "fake", "input_file_id": "FILE"}}],
    ("POST", "/v1/batches"): [{"json": {**CREATE, "input_file_id": "FILE"}}],
    ("POST", "/v1/chat/completions"): [{"json": {"model": "MODEL", "messages": [{"role": "user", "content": "x"}]}}],
    ("POST", "/v1/completions"): [{"json": {"model": "MODEL", "prompt": "x"}}],
    ("POST", "/v1/embeddings"): [{"json": {"model": "MODEL", "input": "x"}}],
}
# Routes that take no name of anything.
NAMELESS = {
    ("POST", "/v1/files"),
    ("POST", "/v1/webhook_endpoints"),
    ("POST", "/v1/keys"),
    *(("GET", f"/v1/{name}") for name in ("models", "usage", "limits", "pools", "webhook_endpoints")),
}
OPEN = {("GET", "/healthz"), ("GET", "/readyz")}


def test_every_route_has_an_entry():
    assert {*ROUTES} == {*BY_PATH, *BY_OTHER, *NAMELESS, *OPEN}


@pytest.fixture(scope="module")
def theirs(api):
    """Names of everything that tenant A has, by kind."""
    key = api.key("tenant-a")
    client = api.openai(key)
    api.home.store.put_alias(Alias(alias="secret-alias", model="fake", tenant="tenant-a"), "test")
    file = client.files.create(file=("private-name.jsonl", some_lines(3)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, **CREATE)
    done = until(lambda: (b := client.batches.retrieve(batch.id)).status == "completed" and b, "the end of the batch")
    job = api.home.store.batch(batch.id, "tenant-a").job
    hook = api.home.store.add_webhook(a_webhook("we_private", tenant="tenant-a"), "test")
    return {
        "HOOK": hook.id,
        "KEY": api.home.store.key_by_digest(digest_of(key))[0].id,
        "FILE": file.id,
        "OUTPUT": done.output_file_id,
        "BATCH": batch.id,
        "JOB": job,
        "MODEL": "secret-alias",
    }


@pytest.fixture(scope="module")
def other(api):
    return api.http(api.key("tenant-b", role=Role.ADMIN, scopes=frozenset(Scope)))


def answer(client, method, path, **given):
    response = client.request(method, path, **given)
    return response.status_code, response.json()


def as_if_named(body, name, nothing):
    """The answer of a thing that never was, with this name in its place."""
    return {"error": {**body["error"], "message": body["error"]["message"].replace(nothing, name)}}


@pytest.mark.parametrize(("method", "path"), BY_PATH, ids=lambda value: value)
def test_a_path_with_anothers_id_is_not_found_in_the_same_words(other, theirs, method, path):
    found, nothing = {}, "nothing-at-all"
    status, body = answer(other, method, IDS.sub(nothing, path), **BY_PATH[method, path])
    for kind, name in theirs.items():
        found[kind] = answer(other, method, IDS.sub(name, path), **BY_PATH[method, path])
    assert status == 404
    assert found == {kind: (404, as_if_named(body, name, nothing)) for kind, name in theirs.items()}


@pytest.mark.parametrize(
    ("method", "path", "given"), [(*route, given) for route, all_given in BY_OTHER.items() for given in all_given]
)
def test_a_body_or_query_with_anothers_id_is_not_found_in_the_same_words(other, theirs, method, path, given):
    def named(value, name):
        if isinstance(value, dict):
            return {key: named(inner, name) for key, inner in value.items()}
        return name if isinstance(value, str) and value in theirs else value

    nothing = "nothing-at-all"
    status, body = answer(other, method, path, **named(given, nothing))
    found = {kind: answer(other, method, path, **named(given, name)) for kind, name in theirs.items()}
    assert status == 404
    assert found == {kind: (404, as_if_named(body, name, nothing)) for kind, name in theirs.items()}


@pytest.mark.parametrize("path", sorted(path for method, path in ROUTES if method == "GET" and "{" not in path))
def test_no_list_holds_anything_of_anothers(other, theirs, path):
    text = other.get(path).text
    assert [name for name in (*theirs.values(), "tenant-a", "private-name") if name in text] == []


@pytest.mark.parametrize(("method", "path"), sorted({*ROUTES} - OPEN), ids=lambda value: value)
def test_without_a_good_key_every_route_says_the_same(api, method, path):
    with api.http() as nobody, api.http("nm_wrong") as stranger:
        found = {nobody.request(method, IDS.sub("x", path)).status_code for _ in range(1)}
        found |= {stranger.request(method, IDS.sub("x", path)).status_code}
    assert found == {401}


def test_a_disabled_tenants_keys_and_expired_and_revoked_ones_open_nothing(api):
    store = api.home.store
    gone = api.key("gone")
    store.put_tenant(store.tenant("gone").evolve(disabled_at=1.0), "test")
    keys = [gone, api.key(expires_at=1.0), api.key(revoked_at=1.0)]
    assert [api.http(key).get("/v1/files").json()["error"]["message"] for key in keys] == [
        "The API key is not good: its tenant is disabled.",
        "The API key is not good: it has expired or was revoked.",
        "The API key is not good: it has expired or was revoked.",
    ]
