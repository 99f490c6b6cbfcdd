"""A tenant reads and writes what it was granted, and nothing else by any way of writing it."""

from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.tenancy import Grant
from tests.support.api import some_lines, until

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def place(api, tmp_path_factory):
    """A folder of which tenant B was granted `mine/`, and what of A's it must not reach."""
    folder = tmp_path_factory.mktemp("granted")
    for name in ("mine", "theirs", "mine-too"):
        (folder / name).mkdir()
        (folder / name / "a.jsonl").write_bytes(some_lines(2))
        pq.write_table(pa.table({"x": ["a", "b"]}), folder / name / "a.parquet")
    store = api.home.store
    theirs = api.openai(api.key("grants-a")).files.create(file=("s.jsonl", some_lines(2)), purpose="batch")
    file = store.file(theirs.id, "grants-a")
    api.key("grants-b")
    store.put_grant(Grant(tenant="grants-b", prefix=f"{folder.as_uri()}/mine/", write=True), "test")
    store.put_grant(Grant(tenant="grants-a", prefix=f"{folder.as_uri()}/theirs/", write=True), "test")
    return folder, file.uri


def others(folder, own, theirs):
    """URIs of what is another's, and ways to it round a grant on `mine/`."""
    up = f"{folder.as_uri()}/mine"
    encoded = quote(str(folder / "theirs/a.jsonl"), safe="")
    return [
        f"{folder.as_uri()}/theirs/a.jsonl",
        f"{folder.as_uri()}/mine-too/a.jsonl",
        f"{up}/../theirs/a.jsonl",
        f"{up}/./../theirs/a.jsonl",
        f"{up}/%2e%2e/theirs/a.jsonl",
        f"{up}/..%2ftheirs/a.jsonl",
        f"{up}//../theirs/a.jsonl",
        f"{up}/..\\theirs\\a.jsonl",
        f"{folder.as_uri()}/*/a.jsonl",
        f"{folder.as_uri()}/mine*/a.jsonl",
        f"{folder.as_uri()}/[t]heirs/a.jsonl",
        f"{folder.as_uri()}/**/a.jsonl",
        f"{folder.as_uri()}/",
        f"{folder.as_uri()}/%6dine/a.jsonl",
        f"FILE://{folder}/mine/a.jsonl",
        f"file://localhost{folder}/mine/a.jsonl",
        f"file://{encoded}",
        str(folder / "mine/a.jsonl"),
        "mine/a.jsonl",
        "../theirs/a.jsonl",
        theirs,
        f"{own}/tenants/grants-b/files/",
        "db:///objects/tenants/grants-a/files/x.jsonl",
        "s3://bucket/theirs/a.jsonl",
        "https://example.com/a.jsonl",
        "/etc/passwd",
        "",
    ]


def test_no_way_of_writing_it_reads_what_is_another_s(api, place):
    folder, theirs = place
    http = api.http(api.key("grants-b"))
    found = {}
    for route in ("/v1/jobs", "/v1/jobs/quote"):
        for uri in others(folder, api.home.own_objects, theirs):
            answer = http.post(route, json={"model": "fake", "input": uri})
            found[route, uri] = answer.status_code, answer.json()["error"]["code"]
    assert {key: told for key, told in found.items() if told != (403, "no_grant")} == {}
    assert api.home.store.jobs(tenant="grants-b") == []


def test_no_way_of_writing_it_writes_where_another_s_is(api, place):
    folder, theirs = place
    http = api.http(api.key("grants-b"))
    before = sorted(path for path in folder.rglob("*"))
    found = {}
    for uri in others(folder, api.home.own_objects, theirs):
        body = {"model": "fake", "rows": [{"x": 1}], "prompt": "{{ x }}", "output": uri.removesuffix("a.jsonl")}
        answer = http.post("/v1/jobs", json=body)
        found[uri] = answer.status_code, answer.json().get("error", {}).get("code")
    assert {uri: told for uri, told in found.items() if told != (403, "no_grant")} == {}
    assert sorted(path for path in folder.rglob("*")) == before


def test_what_was_granted_is_read_and_written_and_no_more_once_the_grant_is_gone(api, place):
    folder, _ = place
    key = api.key("grants-b")
    http, prefix = api.http(key), f"{folder.as_uri()}/mine/"
    asked = {"model": "fake", "input": f"{prefix}*.parquet", "prompt": "say {{ x }}", "output": f"{prefix}out"}
    job = http.post("/v1/jobs", json=asked).json()
    until((folder / f"mine/out/{job['id']}/_SUCCESS").is_file, "the end of the job")
    retry = {"outcomes": ["ok"], "max_tokens": 8}
    assert http.post(f"/v1/jobs/{job['id']}/retry", json=retry).status_code == 200
    api.home.store.remove_grant("grants-b", prefix, "test")
    again = [
        http.post("/v1/jobs", json=asked),
        http.post(f"/v1/jobs/{job['id']}/retry", json=retry),
        http.post(f"/v1/jobs/{job['id']}/retry", json={**retry, "output": f"{prefix}out"}),
    ]
    assert [(a.status_code, a.json()["error"]["code"]) for a in again] == [(403, "no_grant")] * 3
