"""Jobs that another system submits by a message, seen from a terminal; and keys that come again."""

import json

import pytest

from api.cli.exits import Exit
from infra.queue import open_queue
from jobs.ports.queue import Outgoing
from tests.acceptance.conftest import refused, wait_for
from tests.acceptance.goods import ROWS
from tests.acceptance.test_going_on import PROMPT

pytestmark = pytest.mark.acceptance

TOPIC = "nightmill.submit.acme"


@pytest.fixture
def door(nightmill, inputs):
    """A data directory with an ingress for acme, which may read the tests' inputs."""
    (nightmill.home / "nightmill.toml").write_text(f"""
        ingress_tenants = ["acme"]
        ingress_inputs = ["{inputs.as_uri()}"]
        ingress_outputs = ["{nightmill.folder.as_uri()}"]
        [pools.batch]
        model = "fake"
        """)
    nightmill("tenants", "add", "acme")
    nightmill("grants", "add", "acme", inputs.as_uri())
    nightmill("grants", "add", "acme", nightmill.folder.as_uri() + "/out", "--write")
    return nightmill


@pytest.fixture
def send(door, inputs):
    queue = open_queue(door.home)
    queue.ensure_topics([TOPIC])

    def send(key="k", **asked):
        output = f"{door.folder.as_uri()}/out"
        plain = {"input": f"{inputs.as_uri()}/goods.parquet", "model": "fake", "output": output}
        value = json.dumps({**plain, "prompt": "Sell {{ name }}", **asked}).encode()
        queue.publish([Outgoing(topic=TOPIC, key=key.encode(), value=value)])

    yield send
    queue.close()


def letters(nightmill):
    return nightmill("dead", "list", "--json").json


def waiting(door):
    return {topic["topic"]: topic["waiting"] for topic in door("topics", "--json").json}


def test_a_message_becomes_a_job_that_runs_and_what_is_refused_can_be_seen_and_sent_again(door, send, inputs):
    with door.started("up") as up:
        send(id="sku", tags={"team": "web"})
        send("bad", model="qwen")
        wait_for(lambda: len(door.jobs()) == 1 and len(letters(door)) == 1, "a job and a letter", up, every_s=0.2)
        job = door.jobs()[0]
        assert door("watch", job, "--quiet").code == Exit.OK
        assert door.results(job)["outcome"].to_pylist() == ["ok"] * ROWS
        facts = door.status(job)
        assert (facts["tenant"], facts["tags"], facts["pool"]) == ("acme", {"team": "web"}, "batch")
        (letter,) = letters(door)
        assert (letter["origin"], letter["place"], letter["key"], letter["code"]) == (TOPIC, "0:1", "bad", "not_found")
        shown = door("dead", "show", letter["letter"])
        assert f"key      bad\n\n{letter['text']}\n" in shown.out
        assert door("dead", "show", letter["letter"], "--json").json == letter
        sent = door("dead", "replay", letter["letter"], "--json").json
        assert sent == {"letter": letter["letter"], "topic": TOPIC, "partition": 0, "offset": 2}
        wait_for(lambda: len(letters(door)) == 2, "the letter again", up, every_s=0.2)
        wait_for(lambda: waiting(door)[TOPIC] == 0, "the last offset", up, every_s=0.2)  # the poll after the letter
        up.interrupt()
        assert up.wait().code == Exit.OK
    assert len(door.jobs()) == 1


def test_messages_wait_while_nightmill_is_down_and_are_taken_once(door, send):
    send("first")
    with door.started("up") as up:
        wait_for(door.jobs, "a job", up, every_s=0.2)
        up.kill()
        up.wait()
    send("first")
    send("second")
    with door.started("up") as up:
        wait_for(lambda: len(door.jobs()) == 2, "two jobs", up, every_s=0.2)
        for job in door.jobs():
            assert door("watch", job, "--quiet").code == Exit.OK
        up.interrupt()
        assert up.wait().code == Exit.OK
    assert len(door.jobs()) == 2


# ---- a key that comes again -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_key_that_comes_again_with_another_request_is_a_conflict_that_says_where_it_differs(door, inputs, command):
    quiet = ["--quiet"] if command == "run" else []
    keyed = (command, inputs / "goods.parquet", "--model", "fake", *PROMPT, *quiet, "--idempotency-key", "monday")
    first = door(*keyed)
    assert door(*keyed).job == first.job
    other = door(*keyed, "--limit", 3, "--max-tokens", 5, code=Exit.CONFLICT)
    where = f"Idempotency key monday made job {first.job}, which was asked for with another limit, max_tokens."
    assert other == refused(f"{where} Take another key, or ask for the same again.", code=Exit.CONFLICT)
    told = json.loads(door(*keyed, "--limit", 3, "--json", code=Exit.CONFLICT).err)["error"]
    assert (told["code"], told["data"]) == (
        "idempotency_key_reused",
        {"key": "monday", "job": first.job, "fields": "limit"},
    )
    assert door.jobs() == [first.job]
    assert door(*keyed, "--tenant", "acme", "--limit", 3).job != first.job
