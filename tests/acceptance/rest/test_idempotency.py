"""The same request again is the same thing; another one under its key is refused."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from api.rest.app import ROUTERS
from api.serve import parts_of_home
from jobs.errors import Unavailable
from tests.support.api import a_home, some_lines

pytestmark = pytest.mark.acceptance
POSTS = sorted(route.path for router in ROUTERS for route in router.routes if "POST" in route.methods)


def upload(client, key, content=b"{}\n", purpose="batch"):
    files = {"file": ("in.jsonl", content)}
    return client.post("/v1/files", data={"purpose": purpose}, files=files, headers={"idempotency-key": key})


def create(client, key, file, window="24h", **headers):
    body = {"endpoint": "/v1/chat/completions", "completion_window": window, "input_file_id": file}
    return client.post("/v1/batches", json=body, headers={"idempotency-key": key, **headers})


def test_every_post_takes_an_idempotency_key(api):
    document = api.http().get("/openapi.json").json()
    taking = {
        path
        for path, methods in document["paths"].items()
        if any(one["name"] == "Idempotency-Key" for one in methods.get("post", {}).get("parameters", []))
    }
    assert sorted(taking) == POSTS


def test_the_same_request_again_gets_the_first_answer(api):
    client = api.http(api.key("again"))
    first, second = upload(client, "k1"), upload(client, "k1")
    batches = [create(client, "k2", first.json()["id"]) for _ in range(2)]
    assert (
        second.status_code,
        second.content,
        second.headers["idempotent-replayed"],
        batches[1].content == batches[0].content,
        len(client.get("/v1/files", params={"purpose": "batch"}).json()["data"]),
        len(client.get("/v1/batches").json()["data"]),
    ) == (200, first.content, "true", True, 1, 1)


def test_a_request_that_may_still_be_under_way_is_not_taken_for_dead(api):
    limits = api.served._app.state.parts.limits
    assert limits.stale_s > limits.request_s == api.home.settings.request_timeout_s


@pytest.mark.parametrize("request_timeout_s", [1, 60])
def test_a_duplicate_is_told_that_the_first_is_under_way_before_its_own_time_is_up(tmp_path, request_timeout_s):
    home = a_home(tmp_path, request_timeout_s=request_timeout_s)
    try:
        limits = parts_of_home(home).limits
    finally:
        home.close()
    assert 0 < limits.wait_s < limits.request_s == request_timeout_s


@pytest.mark.parametrize(("step", "made"), [("add_file", False), ("answered", True)])
def test_after_a_failure_of_ours_the_same_request_acts_at_once_and_makes_the_same(api, monkeypatch, step, made):
    """Before its answer was noted the file may be there or not."""
    client, store = api.http(api.key(f"failing-{step}")), api.home.store

    def fails(*_):
        monkeypatch.undo()
        raise Unavailable(reason="a test")

    monkeypatch.setattr(type(store), step, fails)
    failed = upload(client, "k")
    there = [file["id"] for file in client.get("/v1/files").json()["data"]]
    again = upload(client, "k")
    files = [file["id"] for file in client.get("/v1/files").json()["data"]]
    assert (failed.status_code, len(there), again.status_code, files) == (503, int(made), 200, [again.json()["id"]])


def test_another_request_under_the_same_key_is_refused(api):
    client = api.http(api.key("mixed"))
    file = upload(client, "k1").json()["id"]
    create(client, "k2", file)
    again = [
        upload(client, "k1", b"[]\n"),
        create(client, "k2", file, "1h"),
        create(client, "k1", file),
        create(client, "k2", file, **{"x-nightmill-order": "input"}),
    ]
    assert [(one.status_code, one.json()["error"]["code"]) for one in again] == [(409, "idempotency_key_in_use")] * 4


def test_a_refused_request_leaves_its_key_free(api):
    client = api.http(api.key("free"))
    refused = [upload(client, "k", purpose="nonsense").status_code, create(client, "k", "file-no").status_code]
    refused += [client.post("/v1/batches", json={}, headers={"idempotency-key": "k"}).status_code]
    assert (refused, upload(client, "k").status_code) == ([400, 404, 400], 200)


def test_another_tenants_key_of_the_same_text_is_another_key(api):
    one, two = (upload(api.http(api.key(name)), "same").json()["id"] for name in ("one", "two"))
    assert one != two


def test_a_hundred_creates_at_once_under_one_key_make_one_batch(api):
    client = api.http(api.key("crowd"))
    file = upload(client, "file", some_lines(2)).json()["id"]
    with ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(lambda _: create(client, "one", file), range(100)))
    made = client.get("/v1/batches").json()["data"]
    assert ({one.status_code for one in answers}, {json.loads(one.content)["id"] for one in answers}) == (
        {200},
        {made[0]["id"]},
    )
    assert len(made) == 1
