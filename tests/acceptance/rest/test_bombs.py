"""Parquet that would bring its reader down is refused, and the API goes on."""

import pytest

from tests.support import bombs
from tests.support.api import until

pytestmark = pytest.mark.acceptance

CORPUS = {
    "many_of_one": "decode to",
    "large_dictionary": "a dictionary of column",
    "one_row_of_all": "takes more than 1024 MiB of memory",
    "deep": "too deeply nested",
}


@pytest.fixture(scope="module")
def http(api):
    return api.http(api.key("bombers"))


def upload(http, content):
    files = {"file": ("x.parquet", content)}
    return http.post("/v1/files", data={"purpose": "batch"}, files=files).json()["id"]


@pytest.mark.parametrize(("name", "reason"), CORPUS.items())
def test_an_uploaded_bomb_is_a_bad_input_in_words_without_a_place(api, http, name, reason):
    file = upload(http, getattr(bombs, name)())
    for route in ("/v1/jobs", "/v1/jobs/quote"):
        answer = http.post(route, json={"model": "fake", "input_file_id": file, "prompt": "say {{ x }}"})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], reason in error["message"]) == (400, "bad_input", True)
        assert "file://" not in error["message"]
        assert str(api.home.settings.home) not in error["message"]
    assert http.get("/v1/limits").status_code == 200


def test_a_batch_of_a_bomb_fails_and_says_why(http):
    asked = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = http.post("/v1/batches", json={**asked, "input_file_id": upload(http, bombs.many_of_one())}).json()
    ended = until(
        lambda: (b := http.get(f"/v1/batches/{batch['id']}").json())["status"] != "validating" and b, "an end"
    )
    assert (ended["status"], len(ended["errors"]["data"])) == ("failed", 1)


def test_what_grows_within_the_bounds_runs_in_small_steps(http):
    """A thousand rows of 64 KiB out of two kilobytes: 64 MiB, read by a task in pieces."""
    file = upload(http, bombs.many_of_one(value_bytes=64 << 10, rows=300))
    asked = {"model": "fake", "input_file_id": file, "prompt": "{{ x[:8] }}", "max_tokens": 2, "keep": []}
    job = http.post("/v1/jobs", json=asked).json()
    ended = until(
        lambda: (j := http.get(f"/v1/jobs/{job['id']}").json())["state"] not in {"running", "paused"} and j, "an end"
    )
    assert (ended["state"], ended["request_counts"]) == ("completed", {"total": 300, "completed": 300, "failed": 0})
