"""What no honest program sends: refused by name, never with a 5xx, and never the end of others' work."""

import json

import pytest

from tests.support.api import some_lines

pytestmark = pytest.mark.acceptance
JSON = {"content-type": "application/json"}
BIG = 10**26
MANY = [str(number) for number in range(9000)]


def a_job(**changes):
    return json.dumps({"rows": [{"a": 1}], "model": "fake", "prompt": "{{ a }}", **changes})


def a_batch(more):
    return f'{{"input_file_id": "FILE", "endpoint": "/v1/chat/completions", "completion_window": "24h", {more}}}'


BATCHES = {
    "a surrogate in a value": (a_batch('"metadata": {"a": "\\ud800"}'), 400, "body"),
    "a surrogate in a key": (a_batch('"metadata": {"\\ud800": "a"}'), 400, "body"),
    "a surrogate for a field": (a_batch('"\\ud800": 1'), 400, "body"),
    "NaN": (a_batch('"metadata": NaN'), 400, "body"),
    "bytes that are no text": (b"\xff\xfe", 400, "body"),
    "nothing but brackets": ("[" * 100_000, 400, "body"),
    "null": ("null", 400, "body"),
    "a number": ("1", 400, "body"),
    "an id with a zero byte": (a_batch('"metadata": {}').replace("FILE", "\\u0000"), 404, "input_file_id"),
}
JOBS = {
    "a million rows that are none": (a_job(rows=[1] * 900_000), 400, "rows.0"),
    "a list of too many": (a_job(keep=[1] * 60_000), 400, "body"),
    "a prompt as long as a book": (a_job(prompt="x" * 1_100_000), 400, "body"),
    "tags with a book for a name": (a_job(tags={"x" * 1_100_000: "y"}), 400, "body"),
    "too many fields": (a_job(**{f"f{n}": 1 for n in range(60_000)}), 400, "body"),
    "too many values in each other": (a_job(tags=[[[1] * 300] * 300]), 400, "body"),
    "a surrogate in a row": (a_job(rows=[{"a": "\ud800"}]), 400, "body"),
    "a surrogate for a column": (a_job(rows=[{"\ud800": "a"}]), 400, "body"),
    "a surrogate in a tag": (a_job(tags={"a": "\ud800"}), 400, "body"),
    "a column of two kinds": (a_job(rows=[{"a": 1}, {"a": "x"}]), 400, "rows"),
    "a number that no column holds": (a_job(rows=[{"a": BIG}]), 400, "rows"),
    "rows without columns": (a_job(rows=[{}]), 400, "rows"),
    "no rows": (a_job(rows=[]), 400, "rows"),
    "a template without an end": (a_job(prompt="{{ a"), 400, None),
    "a seed that is too large": (a_job(seed=BIG), 400, "seed"),
    "a limit that is too large": (a_job(limit=BIG), 400, "limit"),
    "a sample's seed that is too large": (a_job(sample_seed=BIG), 400, "sample_seed"),
    "columns that vary over too much": (a_job(vary=dict.fromkeys("bcdef", MANY)), 400, "vary"),
    "a column that varies over nothing": (a_job(vary={"l": []}), 400, "vary.l"),
    "a deadline in the past": (a_job(deadline=-5), 400, "deadline"),
    "a deadline past all time": (a_job(deadline=1e308), 400, "deadline"),
    "a deadline in words": (a_job(deadline="soon"), 400, "deadline"),
    "a share in words": (a_job(pause_on="often"), 400, "pause_on"),
    "a schema that is none": (a_job(schema={"type": "nope"}), 400, None),
    "a template that is no YAML": (a_job(template="a: [", prompt=None), 400, None),
    "a bucket without a name": (a_job(input="s3://", rows=None), 403, "input"),
    "an output that is no URI": (a_job(output="x"), 403, "output"),
}
READS = {
    "/v1/files/%00": 404,
    "/v1/files?after=%00": 404,
    "/v1/files/%ff%fe": 404,
    "/v1/jobs/%00/events": 404,
    "/v1/jobs/..%2F..%2Fetc/results/..%2Fpasswd": 404,
    "/v1/models/%ed%a0%80": 404,
    "/v1/usage?since=inf": 400,
    "/v1/usage?since=nan": 400,
    f"/v1/files?limit={BIG}": 400,
    f"/v1/files/{'x' * 5000}": 404,
}


@pytest.fixture(scope="module")
def http(api):
    return api.http(api.key("odd"))


@pytest.mark.parametrize(("body", "status", "param"), BATCHES.values(), ids=BATCHES)
def test_an_odd_batch_is_refused(http, body, status, param):
    answer = http.post("/v1/batches", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


@pytest.mark.parametrize(("body", "status", "param"), JOBS.values(), ids=JOBS)
def test_an_odd_job_is_refused(http, body, status, param):
    answer = http.post("/v1/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


@pytest.mark.parametrize("path", READS)
def test_an_odd_address_is_refused(http, path):
    assert http.get(path).status_code == READS[path]


def test_a_file_s_name_is_only_a_name(api, http):
    for name in ("../../../etc/passwd", "a\\b", "\u202egnp.jsonl", "x" * 1000):
        answer = http.post("/v1/files", data={"purpose": "batch"}, files={"file": (name, some_lines(1))})
        assert answer.status_code == 200
        file = api.home.store.file(answer.json()["id"], "odd")
        assert file.uri.rpartition("/")[2] == f"{file.id}.jsonl"


def test_seconds_that_only_look_like_digits_are_refused(http):
    data = {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "\u00b2"}
    answer = http.post("/v1/files", data=data, files={"file": ("a", some_lines(1))})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "expires_after")


@pytest.mark.parametrize("changes", [{"prompt": "{{ a"}, {"output": "x"}, {"model": "no"}, {"keep": ["b"]}], ids=str)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/quote"])
def test_rows_of_a_request_that_is_refused_do_not_stay(api, http, path, changes):
    folder = f"{api.home.own_objects}/tenants/odd/rows"
    before = list(api.home.objects.list(folder))
    answer = http.post(path, content=a_job(**changes), headers=JSON)
    assert (answer.status_code in {400, 403, 404}, list(api.home.objects.list(folder))) == (True, before)
