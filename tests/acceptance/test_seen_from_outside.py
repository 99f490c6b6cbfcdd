"""A run seen by those who operate it: its figures over HTTP, and its log."""

import json
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.conftest import wait_for

pytestmark = pytest.mark.acceptance

LAST_HANGS = ("--engine-arg", "hang_on=Lamp 59", "--rows-per-task", 20, "--quiet")
"""Of the sixty rows two tasks of twenty are committed; then the engine hangs, and nothing moves any more."""
CANARY = "lighthouse-4711"
"""It is in every prompt."""


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def scrape(target):
    """(name, labels without pool and worker) → value."""
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (
            sample.name.removeprefix("nightmill_"),
            *(v for k, v in sample.labels.items() if k not in {"pool", "worker"}),
        ): (sample.value)
        for family in families
        for sample in family.samples
    }


def listed(nightmill):
    """What Prometheus finds in the data directory."""
    files = sorted((nightmill.home / "metrics").glob("*.json"))
    return [entry for file in files for entry in json.loads(file.read_text())]


def test_a_run_shows_rows_and_tokens_that_equal_the_ledger_s_and_is_listed_while_it_lives(nightmill, inputs, port):
    nightmill.env["NIGHTMILL_METRICS_PORT"] = str(port)
    prompt = ("--prompt", "Sell {{ name }} at length.", "--max-tokens", 9)
    with nightmill.started("run", inputs / "goods.parquet", "--model", "fake", *prompt, *LAST_HANGS) as running:
        running.job()
        wait_for(lambda: listed(nightmill), "a listed target", running)
        (target,) = listed(nightmill)
        assert target == {"targets": [f"127.0.0.1:{port}"], "labels": {"role": "run"}}
        where = target["targets"][0]
        wait_for(lambda: sum(v for k, v in scrape(where).items() if k[0] == "rows_total") == 40, "40 rows", running)
        wait_for(lambda: nightmill.status()["rows"] == 40, "40 folded rows", running)
        seen = scrape(where)
        book = nightmill("ledger", "statement", "--json").json["totals"]
        outcomes = nightmill.status()["outcomes"]
        assert {k[1]: v for k, v in seen.items() if k[0] == "rows_total"} == outcomes
        assert {k[1]: v for k, v in seen.items() if k[0] == "tokens_total"} == book[0]["tokens"]
        assert (seen["commit_seconds_count",], seen["release_to_engine_seconds_count", "normal"]) == (2, 3)
        assert (seen["database_up",], seen["jobs", "running"]) == (1, 1)
        running.kill()
    nightmill("resume", "last", "--engine-arg", "hang_on=", "--quiet")
    assert listed(nightmill) == []


def test_a_run_shows_nothing_unless_it_is_told_to(nightmill, inputs):
    nightmill.run(inputs / "goods.parquet", "--prompt", "{{ name }}", "--limit", 3, "--quiet")
    assert not (nightmill.home / "metrics").exists()


def events(nightmill):
    return [json.loads(line) for line in (nightmill.home / "logs/nightmill.log").read_text().splitlines()]


def test_every_event_of_a_task_carries_its_ids_and_no_event_a_prompt_or_a_password(nightmill, inputs):
    """One row kills the engine until it stands alone and is given up; others are errors and truncated."""
    nightmill.env["NIGHTMILL_KAFKA_PASSWORD"] = CANARY
    faults = [f"--engine-arg={fault}" for fault in ("die_on=Lamp 41", "error_on=FAULTY", "length_on=LONG")]
    job = nightmill.run(
        inputs / "goods.parquet",
        "--prompt",
        f"{CANARY}: {{{{ name }}}}",
        "--system",
        f"You know {CANARY}.",
        *faults,
        "--rows-per-task",
        20,
        "--quiet",
        code=None,
    ).job
    found = [event for event in events(nightmill) if event["event"] != "figures_shown"]
    of_a_task = [event for event in found if "task" in event or event["event"].startswith(("task_", "lease_"))]
    assert {event["event"] for event in of_a_task} == {"task_enters", "task_settled"}
    assert len({event["task"] for event in of_a_task}) > 4
    ids = {(event["job"], event["tenant"], event["task"].partition(".")[0]) for event in of_a_task}
    assert ids == {(job, "default", job)}
    others = [event for event in found if event not in of_a_task]
    assert {event["job"] for event in others} == {job}
    assert CANARY not in (nightmill.home / "logs/nightmill.log").read_text()
