"""A submission by a message on a real Kafka, checked against its real input, by processes that are killed."""

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.bootstrap import open_home
from infra.settings import load
from jobs.ports.queue import Outgoing
from jobs.tenancy import Grant, Tenant

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC, DEAD = "nightmill.submit.acme", "nightmill.dead"


@pytest.fixture
def town(kafka, tmp_path):
    """A data directory of which acme may submit what lies in a folder; its settings file."""
    config = tmp_path / "nightmill.toml"
    config.write_text(f"""
        home = "home"
        kafka_bootstrap = "{kafka.address}"
        kafka_partitions = 1
        kafka_session_s = 6
        ingress_tenants = ["acme"]
        ingress_inputs = ["{tmp_path.as_uri()}/in"]
        ingress_outputs = ["{tmp_path.as_uri()}/out"]
        [pools.batch]
        model = "fake"
        """)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": ["a", "b", "c"], "x": ["1", "2", "3"]}), tmp_path / "in/a.parquet")
    yield config
    kafka.clear()


@pytest.fixture
def home(town):
    opened = open_home(load(environ={}, config=town))
    opened.broker.ensure_topics([TOPIC, DEAD])
    opened.store.put_tenant(Tenant(name="acme"), "test")
    for name, write in (("in", False), ("out", True)):
        prefix = f"{opened.settings.home.parent.as_uri()}/{name}/"
        opened.store.put_grant(Grant(tenant="acme", prefix=prefix, write=write), "test")
    yield opened
    opened.close()


def send(home, key=b"k", **asked):
    folder = home.settings.home.parent.as_uri()
    plain = {"input": f"{folder}/in/a.parquet", "model": "fake", "output": f"{folder}/out", "prompt": "{{ x }}"}
    home.broker.publish([Outgoing(topic=TOPIC, key=key, value=json.dumps(plain | asked).encode())])


def run(config, where):
    command = [sys.executable, "-m", "tests.support.door", str(config), where, TOPIC]
    return subprocess.run(command, timeout=90, check=False).returncode


def letters(home):
    consumer, found = home.broker.consumer("reader", [DEAD]), []
    end = home.broker.facts(DEAD).log_end[0]
    while len(found) < end:
        found += consumer.poll(0.5)
    consumer.close()
    return [dict(record.headers)["nightmill-code"].decode() for record in found]


@pytest.mark.parametrize("where", ["before-job", "after-job"])
def test_a_kill_between_message_and_offset_ends_with_one_job(town, home, where):
    send(home, id="id", max_tokens=4)
    assert run(town, where) == -9
    assert home.broker.committed("nightmill.submit", TOPIC, 0) is None
    assert run(town, "never") == 0
    (job,) = home.store.jobs()
    assert (job.tenant, job.pool, job.total_rows, job.idempotency_key) == ("acme", "batch", 3, "k")
    assert (home.broker.committed("nightmill.submit", TOPIC, 0), letters(home)) == (1, [])


def test_a_kill_after_a_dead_letter_repeats_the_letter_and_makes_no_job(town, home):
    send(home, prompt="{{ nothing }}")
    assert run(town, "after-letter") == -9
    assert run(town, "never") == 0
    assert (letters(home), home.store.jobs()) == (["bad_template", "bad_template"], [])


def test_the_same_key_again_is_the_same_job_even_when_its_input_is_gone_and_another_request_is_refused(town, home):
    send(home)
    assert run(town, "never") == 0
    (town.parent / "in/a.parquet").unlink()
    send(home)
    send(home, prompt="Buy {{ x }}")
    send(home, key=b"other")
    send(home, key=b"local", input="file:///etc/hosts")
    assert run(town, "never") == 0
    assert len(home.store.jobs()) == 1
    assert sorted(letters(home)) == ["bad_input", "idempotency_key_reused", "storage_refused"]


def test_what_is_not_granted_is_refused_and_what_is_a_job_already_stays_one(town, home):
    send(home)
    assert run(town, "never") == 0
    home.store.remove_grant("acme", f"{town.parent.as_uri()}/in/", "test")
    send(home)
    send(home, key=b"ungranted")
    assert run(town, "never") == 0
    assert (len(home.store.jobs()), letters(home)) == (1, ["no_grant"])
