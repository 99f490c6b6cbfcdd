"""Commands of a cluster that need no Ray: what is refused, and jobs that wait for it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.cli.main import run

pytestmark = pytest.mark.unit

POOLS = """
home = "home"
[pools.batch]
model = "fake"
[pools.talk]
model = "fake"
purpose = "interactive"
[pools.other]
model = "smollm2"
"""


@pytest.fixture
def say(tmp_path, capsys):
    """Run a command with these pools; (exit code, stdout, stderr)."""
    config = tmp_path / "nightmill.toml"
    config.write_text(POOLS)
    pq.write_table(pa.table({"x": ["a", "b"]}), tmp_path / "in.parquet")

    def say(*words):
        capsys.readouterr()
        code = run(["--config", str(config), *words])
        return code, *capsys.readouterr()

    return say


@pytest.fixture
def submit(say, tmp_path):
    def submit(*words, model="fake"):
        places = (str(tmp_path / "in.parquet"), "--output", str(tmp_path / "out"))
        return say("submit", *places, "--model", model, "--prompt", "{{ x }}", *words)

    return submit


def test_a_submitted_job_waits_in_its_pool(say, submit):
    code, out, err = submit("--priority", "high", "--json")
    facts = json.loads(out)
    assert (code, facts["pool"], facts["priority"], facts["state"]) == (0, "batch", "high", "running")
    assert "FAKE ENGINE" in err
    assert json.loads(say("status", "last", "--json")[1])["pool"] == "batch"


def test_a_pool_may_be_named(submit):
    assert json.loads(submit("--pool", "talk", "--json")[1])["pool"] == "talk"


@pytest.mark.parametrize(
    ("words", "model", "sentence"),
    [
        ([], "qwen", "There is no pool for batch jobs of model named qwen. Served are: fake (pool batch, batch), "),
        (["--pool", "bacth"], "fake", "There is no pool named bacth. Served are: fake (pool batch, batch), "),
        (["--pool", "other"], "fake", "--pool: pool other serves smollm2, not fake."),
        (["--engine-arg", "a=1"], "fake", "--engine-arg: in a cluster the pool's settings say how its engines run."),
    ],
)
def test_what_no_pool_can_run_is_refused(submit, words, model, sentence):
    code, out, err = submit(*words, model=model)
    assert (code, out, sentence in err) == (2, "", True), err


def test_a_waiting_job_is_steered_without_a_cluster(say, submit):
    submit()
    assert say("priority", "last", "critical")[0] == 0
    assert say("pause", "last")[0] == 0
    assert say("resume", "last")[0] == 0
    code, out, _ = say("cancel", "last")
    assert (code, "cancelling; pool batch ends it" in out) == (0, True)
    facts = json.loads(say("status", "last", "--json")[1])
    assert (facts["state"], facts["priority"]) == ("cancelling", "critical")


def test_only_a_paused_job_of_a_cluster_can_be_resumed(say, submit):
    submit()
    code, _, err = say("resume", "last")
    assert (code, "needs a job that is paused" in err) == (2, True)


def test_up_wants_a_cluster_and_pools(say, tmp_path):
    assert say("up")[0] == 2
    empty = tmp_path / "empty.toml"
    empty.write_text("home = 'home'\n")
    code, _, err = say("up", "--cluster", "--config", str(empty))
    assert (code, "No pool is declared" in err) == (2, True)


def test_topics_and_dead_letters_are_told_before_there_are_any(say):
    assert json.loads(say("dead", "list", "--json")[1]) == []
    found = json.loads(say("topics", "--json")[1])
    assert [f["topic"] for f in found][:2] == ["nightmill.batch.critical", "nightmill.batch.high"]
    assert say("dead", "show", "0:0")[0] == 2


def test_priority_says_its_job_as_json(say, submit):
    submit()
    code, out, _ = say("priority", "last", "critical", "--json")
    facts = json.loads(out)
    assert (code, facts["pool"], facts["priority"], facts["state"]) == (0, "batch", "critical", "running")


@pytest.mark.parametrize("words", [("dead", "show", "0:0"), ("dead", "replay", "0:0")])
def test_a_letter_that_is_not_there_is_told_as_json(say, words):
    code, out, err = say(*words, "--json")
    assert (code, out, json.loads(err)["error"]["code"]) == (2, "", "not_found")


def test_a_key_that_comes_again_with_another_request_is_a_conflict(say, submit):
    first = json.loads(submit("--idempotency-key", "k", "--json")[1])["job"]
    assert json.loads(submit("--idempotency-key", "k", "--json")[1])["job"] == first
    code, out, err = submit("--idempotency-key", "k", "--priority", "high", "--pool", "talk")
    assert (code, out, f"made job {first}, which was asked for with another pool, priority." in err) == (8, "", True)


def test_an_ingress_is_listed_among_the_topics(say, tmp_path):
    config = tmp_path / "nightmill.toml"
    config.write_text('ingress_tenants = ["acme"]\n' + config.read_text())
    found = [topic["topic"] for topic in json.loads(say("topics", "--json")[1])]
    assert found[-2:] == ["nightmill.submit.acme", "nightmill.dead"]
