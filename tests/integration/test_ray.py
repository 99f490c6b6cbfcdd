"""A cluster on one local Ray with the fake engine: submit, kill, drain, scale to zero and back.

Most over SQLite, which several processes may share: what is proved there is the cluster's own part. One job runs over
Kafka, PostgreSQL and S3.
"""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from jobs.model import JobState
from jobs.ports.queue import Outgoing
from tests.support.local_ray import a_town, local_ray
from tests.support.s3 import BUCKET, KEYS

if find_spec("ray") is not None:
    import ray

    from tests.support.town import ROWS, Town, assert_whole, wasted_tokens, written

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def ray_of_tests():
    os.environ.update(KEYS)  # actors have the environment of their Ray; an S3 server of tests takes these
    with local_ray():
        yield
    for name in KEYS:
        del os.environ[name]


@pytest.fixture(scope="module")
def town(ray_of_tests, tmp_path_factory):
    # An address of this machine that counts as one that others can reach.
    with a_town(tmp_path_factory.mktemp("town"), 'metrics_bind = "127.0.0.2"\n') as opened:
        yield opened


def test_a_submitted_job_is_completed_and_the_pool_goes_to_zero_and_back(town):
    assert_whole(town, town.submit())
    town.until(lambda: town.workers(None) == [], "no worker is left")
    assert_whole(town, town.submit("--priority", "high"))


def test_a_pool_that_goes_to_zero_and_back_under_a_paused_job_loses_and_repeats_nothing(town):
    job = town.submit()
    town.until_rows(job, 200)
    assert town.command("pause", job.id) == 0
    town.until(lambda: town.workers(None) == [], "no worker is left")
    assert town.command("resume", job.id) == 0
    assert_whole(town, job)
    assert wasted_tokens(town, job) == 0


def test_a_killed_worker_is_replaced_and_its_rows_are_done_elsewhere(town):
    job = town.submit()
    town.until_rows(job, 200)
    victim = town.workers()[0]
    os.kill(victim["pid"], signal.SIGKILL)
    assert_whole(town, job)
    town.until(lambda: victim["name"] not in [w["name"] for w in town.workers(None)], "the dead one is forgotten")


def test_killed_scheduler_dispatcher_and_fleet_come_back_and_the_job_goes_on(town):
    job = town.submit()
    town.until_rows(job, 200)
    for actor in ("scheduler", "dispatcher.batch.0", "fleet"):
        town.kill(actor)
    assert_whole(town, job)


def test_a_worker_with_sigterm_and_one_that_is_drained_lose_and_repeat_nothing(town):
    job = town.submit()
    town.until(lambda: len(town.workers()) == 2, "two workers run")
    town.until_rows(job, 200)
    first, second = town.workers()
    os.kill(first["pid"], signal.SIGTERM)
    assert town.command("drain", second["name"]) == 0
    assert_whole(town, job)
    assert wasted_tokens(town, job) == 0


def test_workers_of_a_machine_that_goes_hold_their_place_and_none_begins_there_until_it_turns_out_to_stay(town):
    job = town.submit()
    town.until(lambda: len(town.workers()) == 2, "two workers run")
    town.until_rows(job, 200)
    notice = town.settings.home / "going"
    notice.write_text("at noon")
    town.until(lambda: len([w for w in town.workers("draining") if w["going"]]) == 2, "both drain")
    town.until(lambda: not any(w["open_tasks"] for w in town.workers(None)), "nothing is in anyone's hands")
    town.until(lambda: len(town.workers("pending")) == 2, "two wait for another machine")
    assert (wasted_tokens(town, job), town.job(job).state) == (0, JobState.RUNNING)
    notice.unlink()
    for worker in town.workers("draining"):
        os.kill(worker["pid"], signal.SIGKILL)
    assert_whole(town, job)
    assert wasted_tokens(town, job) == 0


def test_a_rolling_restart_loses_and_repeats_nothing(town):
    job = town.submit()
    town.until(lambda: len(town.workers()) == 2, "two workers run")
    before = {worker["name"] for worker in town.workers()}
    assert town.command("restart", "batch") == 0
    assert_whole(town, job)
    assert wasted_tokens(town, job) == 0
    town.until(lambda: not before & {w["name"] for w in town.workers(None)}, "all are replaced")


def test_a_job_is_paused_resumed_and_cancelled_from_the_command_line(town):
    job = town.submit()
    town.until_rows(job, 100)
    assert town.command("pause", job.id) == 0
    town.until(lambda: not town.home.store.open_reservations(job.id), "nothing is in anyone's hands")
    assert town.command("resume", job.id) == 0
    town.until_rows(job, town.job(job).usage.rows + 100)
    assert town.command("cancel", job.id) == 0
    done = town.completed(job)
    assert (done.state, done.usage.rows, len(written(done))) == (JobState.CANCELLED, ROWS, ROWS)
    assert town.home.store.verify().faults == ()


def test_an_urgent_job_overtakes_a_waiting_one_and_both_are_whole(town):
    slow = town.submit("--priority", "batch")
    town.until_rows(slow, 100)
    fast = town.submit("--priority", "batch", "--limit", "200")
    assert town.command("priority", fast.id, "critical") == 0
    town.until(lambda: town.job(fast).state.terminal, "the end of the urgent one")
    assert town.job(slow).state is JobState.RUNNING
    assert town.job(fast).usage.rows == 200
    assert_whole(town, slow)


ACTORS = {
    "fleet": "nightmill_workers_wanted",
    "scheduler": "nightmill_backlog_tokens",
    "dispatcher": "nightmill_messages_leased_total",
    "worker": "nightmill_commit_seconds_count",
}


def test_every_actor_shows_its_figures_and_is_listed_for_prometheus(town):
    def answering():
        """Roles whose listed processes all show what they should."""
        targets = [(entry["labels"]["role"], entry["targets"][0]) for entry in town.targets()]
        silent = {role for role, target in targets if ACTORS[role] not in town.figures(target)}
        return {role for role, _ in targets} - silent

    job = town.submit()
    town.until_rows(job, 100)
    town.until(lambda: answering() == set(ACTORS), "figures of every actor")
    assert_whole(town, job)


def test_every_event_of_a_task_carries_its_ids_and_in_a_worker_its_worker(town):
    lines = (town.settings.home / "logs/nightmill.log").read_text().splitlines()
    events = [event for line in lines if "task" in (event := json.loads(line))]
    of_workers = [event for event in events if event["event"] in {"task_enters", "task_settled"}]
    assert [e for e in events if not e.keys() >= {"job", "tenant"} and e.get("role") != "dispatcher"] == []
    assert [e for e in of_workers if not e["worker"].startswith("batch-") or e["role"] != "worker"] == []
    assert len({event["task"] for event in of_workers}) >= ROWS / 100
    assert {event["task"].partition(".")[0] == event["job"] for event in of_workers} == {True}


def test_an_actor_whose_own_file_is_on_another_node_is_listed_by_the_fleet(town):
    def listed():
        return [e["labels"]["role"] for e in town.targets() if e["targets"][0] == target and e["labels"]["node"]]

    (file,) = (town.settings.home / "metrics").glob("scheduler-*.json")
    (entry,) = json.loads(file.read_text())
    (target,) = entry["targets"]
    file.unlink()
    town.until(lambda: listed() == ["scheduler"], "the list of other nodes")
    file.write_text(json.dumps([entry]))
    town.until(lambda: listed() == ["scheduler"], "the same target once again")


def test_the_views_say_what_runs(town, capsys):
    job = town.submit("--limit", "50")
    assert town.command("watch", "--quiet", job.id) == 0
    assert town.command("wait", job.id) == 0
    for words in (["pools"], ["topics"], ["workers"], ["status", job.id], ["dead", "list"]):
        capsys.readouterr()
        assert town.command(*words, "--json") == 0
        assert json.loads(capsys.readouterr().out) is not None
        assert town.command(*words) == 0
    assert town.command("drain", "nobody") == 2


def test_a_schema_that_the_pool_s_engine_cannot_follow_is_refused_before_there_is_a_job(town, tmp_path, capsys):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"a": {"not": {"type": "null"}}}}')
    town.submit("--limit", "400")
    town.until(town.workers, "a worker that runs")
    before, words = len(town.home.store.jobs()), ["submit", str(town.input), "--model", "fake", "--prompt", "{{ x }}"]
    capsys.readouterr()
    assert town.command(*words, "--schema", str(schema), "--output", str(town.folder / "out")) == 2
    assert "The output schema cannot be used: " in capsys.readouterr().err
    assert len(town.home.store.jobs()) == before


def test_an_unreadable_message_becomes_a_dead_letter_and_can_be_sent_again(town, capsys):
    def letters():
        capsys.readouterr()
        assert town.command("dead", "list", "--json") == 0
        return json.loads(capsys.readouterr().out)

    before = len(letters())
    town.submit("--limit", "20")  # a pool without workers takes nothing out of its topics
    topic = "nightmill.batch.high"
    town.home.broker.publish([Outgoing(topic=topic, key=b"k", value=b"{not ours")])
    town.until(lambda: len(letters()) == before + 1, "a dead letter")
    letter = letters()[-1]
    assert (letter["origin"], letter["key"], letter["text"]) == (topic, "k", "{not ours")
    assert town.command("dead", "replay", letter["letter"]) == 0
    town.submit("--limit", "20")
    town.until(lambda: len(letters()) == before + 2, "the letter comes back")


def test_the_same_over_kafka_postgresql_and_s3_with_a_worker_and_a_dispatcher_killed(
    ray_of_tests, tmp_path, kafka, postgres, s3
):
    with postgres.database() as database:
        services = (
            'topic_prefix = "services"\napi_replicas = 0\n'
            f'database_url = "{database.url}"\nkafka_bootstrap = "{kafka.address}"\n'
            f'kafka_partitions = 1\ns3_endpoint = "{s3.endpoint}"\nobjects = "s3://{BUCKET}/own"\n'
            f'ray_address = "{ray.get_runtime_context().gcs_address}"\n'
        )
        town = Town(tmp_path, services)
        town.home.store.now()
        up = [sys.executable, "-m", "api.cli.main", "up", "--cluster", "--detach", "--config", str(town.config)]
        subprocess.run(up, check=True, timeout=120, cwd=Path(__file__).parents[2])
        try:
            job = town.submit("--output", f"s3://{BUCKET}/results", "--order", "input")
            town.until_rows(job, 200)
            space = "services-cluster"
            dispatcher = ray.get_actor("dispatcher.batch.0", namespace=space)
            os.kill(ray.get(dispatcher.pid.remote(), timeout=30), signal.SIGKILL)
            os.kill(town.workers()[0]["pid"], signal.SIGKILL)
            done = town.completed(job)
            assert (done.state, done.usage.rows, dict(done.usage.outcomes)) == (JobState.COMPLETED, ROWS, {"ok": ROWS})
            rows = town.home.results.rows(done, limit=ROWS + 1)
            assert [row["custom_id"] for row in rows] == [str(n) for n in range(ROWS)]
            assert town.home.store.verify().faults == ()
        finally:
            town.cluster.down(10)
            town.home.close()
