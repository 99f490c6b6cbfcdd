"""The door of a worker on Ray: told by its report alone, served over TCP, lost with the worker; and what it lends."""

import os
import signal
import sqlite3
from contextlib import closing
from importlib.util import find_spec

import pytest

from infra.live import RemoteDoor
from jobs.model import JobState
from jobs.ports.engine import RequestProfile
from jobs.requests import End
from tests.support.doors import Waiting
from tests.support.live import a_live_request
from tests.support.local_ray import a_town, local_ray

if find_spec("ray") is not None:
    from workers.actors.common import Roster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

POOLS = """
[pools.talk]
model = "fake"
purpose = "interactive"
lends = true
min_workers = 1
num_cpus = 0.1
engine_args = { max_num_seqs = 16, token_latency_s = 0.002 }
[pools.batch]
model = "fake"
num_cpus = 0.1
engine_args = { start_s = 600.0 }
"""


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with local_ray(), a_town(tmp_path_factory.mktemp("town"), pool=POOLS) as opened:
        yield opened


@pytest.fixture
def report(town):
    """Of the worker that talks, once it runs."""
    roster, found = Roster(), []

    def runs():
        names = [worker["name"] for worker in town.workers(None) if worker["pool"] == "talk"]
        found[:] = [one for one in roster.reports(names, timeout_s=5.0).values() if one.phase == "running"]
        return found

    town.until(runs, "a worker that talks runs")
    return found[0]


@pytest.fixture
def door(report, town):
    opened = RemoteDoor(report.name, report.door, report.secret)
    town.until(lambda: opened.load().open, "its door is open")
    yield opened
    opened.close()


def ask(town, door, tokens, **changes):
    profile = RequestProfile(key=f"k{tokens}", kind="chat", sampling=f'{{"max_tokens":{tokens}}}', stream=True)
    price = town.home.store.price("fake")
    request, ear = a_live_request(profile=profile, price=price, model="fake", tenant="acme", **changes), Waiting()
    door.enter(request, ear)
    return request, ear


def test_only_the_worker_itself_tells_the_secret_of_its_door(town, report):
    shown = [worker for worker in town.workers(None) if worker["name"] == report.name]
    assert (shown[0]["door"], shown[0]["secret"], len(report.secret) > 30) == (report.door, "", True)


def test_a_request_through_the_door_is_served_and_charged(town, door):
    request, ear = ask(town, door, 4)
    ended = ear.until_ended()
    assert (ended.end, ended.usage.output_tokens, ear.text) == (End.DONE, 4, ended.result.text)
    with closing(sqlite3.connect(town.home.settings.database)) as book:
        found = book.execute("SELECT tenant, worker, outcome FROM requests WHERE id = ?", [request.id]).fetchall()
    assert found == [("acme", door.name, "truncated")]


def test_a_job_of_a_pool_that_cannot_start_is_done_by_the_worker_that_is_lent(town, door):
    job = town.submit()
    town.until(lambda: town.home.store.job(job.id).state is JobState.COMPLETED, "the job is completed")
    found = town.home.store.job(job.id)
    assert (found.pool, found.usage.rows, ask(town, door, 4)[1].until_ended().end) == ("batch", 1600, End.DONE)


def test_a_killed_worker_loses_what_was_inside_and_another_takes_its_place(town, report, door):
    _, ear = ask(town, door, 4000, prompt="word " * 1000)
    ear.until(2)
    os.kill(report.pid, signal.SIGKILL)
    assert ear.until_ended().end is End.LOST
    town.until(lambda: {w["name"] for w in town.workers(None) if w["pool"] == "talk"} - {report.name}, "another worker")
