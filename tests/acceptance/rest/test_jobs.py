"""Nightmill's own jobs over HTTP: all that the command line does."""

import io
import json

import pyarrow.parquet as pq
import pytest

from jobs.request import NAMES
from jobs.tenancy import Grant
from tests.support.api import some_lines, town, until

pytestmark = pytest.mark.acceptance
ENDED = {"completed", "failed", "expired", "cancelled"}
ROWS = [{"name": "a lamp", "price": 12}, {"name": "a chair"}]
INLINE = {"rows": ROWS, "model": "fake", "prompt": "Describe {{ name }}.", "max_tokens": 8}


@pytest.fixture(scope="module")
def http(api):
    return api.http(api.key("natives"))


def made(http, **changes):
    answer = http.post("/v1/jobs", json={**INLINE, **changes})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(http, job):
    return until(lambda: (j := http.get(f"/v1/jobs/{job['id']}").json())["state"] in ENDED and j, "the end of a job")


def test_inline_rows_become_parquet_parts_with_links_and_lines_that_go_on_where_they_broke_off(http):
    job = ended(http, made(http, tags={"team": "web"}, priority="high"))
    manifest = http.get(f"/v1/jobs/{job['id']}/results").json()
    table = pq.read_table(io.BytesIO(http.get(manifest["parts"][0]["url"]).content))
    lines = http.get(f"/v1/jobs/{job['id']}/lines")
    rest = http.get(f"/v1/jobs/{job['id']}/lines", headers={"range": "bytes=100-"})
    assert (
        job["state"],
        job["request_counts"],
        job["tags"],
        job["output"],
        (table["name"].to_pylist(), table["price"].to_pylist()),
        [json.loads(line)["custom_id"] for line in lines.text.splitlines()],
        rest.status_code,
        rest.content,
        rest.headers["content-range"],
    ) == (
        "completed",
        {"total": 2, "completed": 2, "failed": 0},
        {"team": "web"},
        None,
        (["a lamp", "a chair"], [12, None]),
        ["0", "1"],
        206,
        lines.content[100:],
        f"bytes 100-{len(lines.content) - 1}/{len(lines.content)}",
    )


def test_a_job_reads_an_uploaded_file(http):
    uploaded = http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", some_lines(5))}).json()
    answer = http.post("/v1/jobs", json={"input_file_id": uploaded["id"], "model": "fake"})
    job = ended(http, answer.json())
    assert (job["state"], job["request_counts"]["completed"]) == ("completed", 5)


def test_a_job_reads_and_writes_where_its_tenant_was_granted_and_nowhere_else(api, http, tmp_path):
    api.home.store.put_grant(Grant(tenant="natives", prefix=f"{tmp_path.as_uri()}/in/"), "test")
    api.home.store.put_grant(Grant(tenant="natives", prefix=f"{tmp_path.as_uri()}/out/", write=True), "test")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(some_lines(2))
    (tmp_path / "secret.jsonl").write_bytes(some_lines(2))
    mine, other = f"{tmp_path.as_uri()}/in/a.jsonl", f"{tmp_path.as_uri()}/secret.jsonl"

    def asked(**places):
        answer = http.post("/v1/jobs", json={"model": "fake", **places})
        return answer.status_code, answer.json().get("error", {}).get("code")

    good = http.post("/v1/jobs", json={"model": "fake", "input": mine, "output": f"{tmp_path.as_uri()}/out/"})
    assert ended(http, good.json())["output"] == f"{tmp_path.as_uri()}/out/{good.json()['id']}"
    assert [
        asked(input=other),
        asked(input=f"{tmp_path.as_uri()}/in/../secret.jsonl"),
        asked(input=str(tmp_path / "in/a.jsonl")),
        asked(input=mine, output=f"{tmp_path.as_uri()}/in/"),
        asked(input=f"{api.home.own_objects}/tenants/acme/files/x.jsonl"),
        asked(input=mine, rows=ROWS),
    ] == [(403, "no_grant")] * 5 + [(400, "bad_input")]


def test_a_quote_says_what_it_would_cost_and_makes_nothing(api, http):
    before = len(http.get("/v1/jobs").json()["data"])
    found = http.post("/v1/jobs/quote", json=INLINE).json()
    left = [facts.uri for facts in api.home.objects.list(f"{api.home.own_objects}/tenants/natives/rows/")]
    assert (found["rows"], found["output_tokens"], found["currency"], len(http.get("/v1/jobs").json()["data"])) == (
        2,
        16,
        "USD",
        before,
    )
    assert [uri for uri in left if "quote" in uri] == []


def test_an_unchanged_job_is_not_sent_again(http):
    job = ended(http, made(http))
    first = http.get(f"/v1/jobs/{job['id']}")
    again = http.get(f"/v1/jobs/{job['id']}", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_rows_are_looked_at_by_outcome_and_some_are_done_again(http):
    job = ended(http, made(http, max_tokens=1))
    rows = http.get(f"/v1/jobs/{job['id']}/rows", params={"outcome": "truncated"}).json()["data"]
    child = ended(
        http, http.post(f"/v1/jobs/{job['id']}/retry", json={"outcomes": ["truncated"], "max_tokens": 64}).json()
    )
    none = http.post(f"/v1/jobs/{job['id']}/retry", json={"outcomes": ["error"]})
    assert (
        [row["row"] for row in rows],
        child["parent"],
        child["outcomes"],
        (none.status_code, none.json()["error"]["code"]),
    ) == ([0, 1], job["id"], {"ok": 2}, (400, "nothing_to_retry"))


def test_events_tell_of_every_state_and_end_with_the_job(http):
    job = made(http)
    with http.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
        text = "".join(stream.iter_text())
    events = [block.split("\n") for block in text.strip().split("\n\n") if block.startswith("id:")]
    last = json.loads(events[-1][2].removeprefix("data: "))
    assert (stream.headers["content-type"].partition(";")[0], events[0][1] in {"event: state", "event: end"}) == (
        "text/event-stream",
        True,
    )
    assert (events[-1][1], last["id"], last["state"]) == ("event: end", job["id"], "completed")


def test_lists_go_on_by_cursor(api):
    http = api.http(api.key("many"))
    made_ids = [made(http)["id"] for _ in range(3)]
    first = http.get("/v1/jobs", params={"limit": 2}).json()
    second = http.get("/v1/jobs", params={"limit": 2, "after": first["last_id"]}).json()
    assert ([job["id"] for job in first["data"] + second["data"]], first["has_more"], second["has_more"]) == (
        made_ids[::-1],
        True,
        False,
    )


def test_the_statement_is_the_tenants_own_and_adds_up(api):
    http = api.http(api.key("payer"))
    job = ended(http, made(http))
    usage = http.get("/v1/usage").json()
    later = http.get("/v1/usage", params={"since": job["finished_at"] + 1000}).json()
    assert (
        {line["job"] for line in usage["data"]},
        sum(line["amount_pico"] for line in usage["data"]),
        usage["totals"],
        later["data"],
    ) == ({job["id"]}, job["amount_pico"], {"USD": job["amount"]}, [])


def test_limits_and_pools_say_what_there_is(api):
    http = api.http(api.key("looker"))
    assert (http.get("/v1/limits").json(), http.get("/v1/pools").json()) == (
        {
            "object": "limits",
            "enqueued_tokens": 0,
            "enqueued_tokens_limit": None,
            "max_upload_bytes": 16_384 << 20,
            "max_body_bytes": 16 << 20,
            "max_batch_lines": 5_000_000,
            "rate_limits": [],
        },
        {"object": "list", "data": [{"name": "fake", "purpose": "batch", "model": "fake"}]},
    )


def test_a_request_takes_the_fields_that_a_message_takes(api):
    schema = api.http().get("/openapi.json").json()["components"]["schemas"]["JobRequest"]
    own = {"input_file_id", "rows", "webhook"}
    assert set(schema["properties"]) == (NAMES | own) - {"pool", "project"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """An engine that leaves time to stop a job."""
    with town(tmp_path_factory.mktemp("slow"), engine_args={"rows_per_s": 20}, beat_s=0.2) as opened:
        yield opened


def test_a_job_is_paused_resumed_hurried_and_cancelled(slow):
    http = slow.http(slow.key())
    job = made(http, rows=[{"name": f"thing {n}"} for n in range(400)], rows_per_task=32)
    paused = http.post(f"/v1/jobs/{job['id']}/pause").json()
    wrong = http.get(f"/v1/jobs/{job['id']}/results")
    resumed = http.post(f"/v1/jobs/{job['id']}/resume").json()
    hurried = http.post(f"/v1/jobs/{job['id']}/priority", json={"priority": "critical"}).json()
    cancelled = http.post(f"/v1/jobs/{job['id']}/cancel").json()
    final = ended(http, job)
    again = http.post(f"/v1/jobs/{job['id']}/cancel")
    late = http.post(f"/v1/jobs/{job['id']}/pause")
    assert (
        paused["state"],
        (wrong.status_code, wrong.json()["error"]["code"]),
        resumed["state"],
        hurried["priority"],
        cancelled["state"],
        (final["state"], final["request_counts"]["completed"] + final["request_counts"]["failed"]),
        again.status_code,
        (late.status_code, late.json()["error"]["code"]),
    ) == (
        "paused",
        (409, "wrong_state"),
        "running",
        "critical",
        "cancelling",
        ("cancelled", 400),
        200,
        (409, "wrong_state"),
    )
