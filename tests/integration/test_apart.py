"""The scheduling of `nightmill up` in a process of its own: what becomes of it, and of the batches, when one dies."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from api.cli.exits import Exit
from jobs.pools import pool_for
from tests.support.api import a_home, some_lines, town, until
from tests.support.upped import upped
from workers import apart
from workers.apart import SchedulerEnded
from workers.embedded import Embedded

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SEED, KILLS, BATCHES, LINES = 20261130, 5, 60, 3
WAIT_S = 30.0
POOLS = """
api_port = 0
[pools.fake]
model = "fake"
requests = true
min_workers = 1
"""
CORES = len(os.sched_getaffinity(0))


def scheduler(parent=None):
    """The process that is there now."""
    (found,) = [child for child in psutil.Process(parent).children() if is_scheduler(child)]
    return found


def is_scheduler(process):
    try:
        return "workers.apart" in process.cmdline()
    except psutil.Error:  # it has ended, and nobody has looked yet
        return False


def test_batches_end_once_though_it_is_killed_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "_LEAST_S", 0.0)
    pause, under_way = random.Random(SEED), 0
    with town(tmp_path, up_processes=2) as opened:
        client, batches = opened.openai(), []
        for kill in range(KILLS):
            until(lambda kill=kill: opened.mill.led and opened.home.store.leader("fake").epoch > kill, f"lead {kill}")
            for _ in range(BATCHES // KILLS):
                file = client.files.create(file=("in.jsonl", some_lines(LINES)), purpose="batch")
                created = client.batches.create(
                    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
                )
                batches.append(created.id)
            time.sleep(pause.uniform(0.0, 0.4))
            scheduler().kill()
            under_way += any(one.status != "completed" for one in client.batches.list(limit=100).data)
        told = 0
        for name in batches:
            ended = until(
                lambda name=name: (one := client.batches.retrieve(name)).status == "completed" and one, f"end of {name}"
            )
            assert len(client.files.content(ended.output_file_id).text.splitlines()) == LINES
            told += ended.usage.output_tokens
        charged = opened.http(client.api_key).get("/v1/usage").json()["data"]
        until(lambda: opened.home.store.leader("fake").epoch == KILLS + 1, "lead of the last one")
    assert under_way > 0
    assert sum(line["tokens"] for line in charged if line["token_class"] == "output") == told > 0


@pytest.fixture
def mill(tmp_path):
    home = a_home(tmp_path)
    opened = Embedded(home, [pool_for(home.registry.resolve("fake"))])
    opened.home = home
    yield opened
    opened.close(5.0)
    home.close()


def test_one_that_dies_soon_after_its_start_again_and_again_ends_all_and_is_told(mill, monkeypatch):
    monkeypatch.setattr(apart, "_LEAST_S", 3600.0)
    monkeypatch.setattr(apart, "_REST_S", 0.1)
    mill.start()
    for death in range(apart._TRIES):
        assert not mill.alarm.rang
        until(lambda death=death: mill.led and mill.home.store.leader("fake").epoch > death, f"lead {death}")
        scheduler().kill()
    assert mill.alarm.wait(WAIT_S)
    assert isinstance(mill.alarm.error, SchedulerEnded)
    assert mill.alarm.error.sentence == "The scheduler's process ended: with exit code -9, soon after its start."


def test_one_that_cannot_be_started_ends_all(mill, monkeypatch):
    def no_memory(*_, **__):
        raise MemoryError("fork")

    monkeypatch.setattr(subprocess, "Popen", no_memory)
    mill.start()
    assert mill.alarm.wait(WAIT_S)
    assert isinstance(mill.alarm.error, MemoryError)
    monkeypatch.undo()


@pytest.fixture
def up(tmp_path):
    with upped(tmp_path, POOLS) as opened:
        opened.ready(opened.client(opened.key()), "fake")
        yield opened


def test_a_pool_that_somebody_else_leads_ends_all_with_the_same_words_as_in_one_process(up):
    up.home.store.lead("fake", "another")
    client = up.client(up.key())
    file = client.files.create(file=("in.jsonl", some_lines(1)), purpose="batch")
    client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    up.process.communicate(timeout=WAIT_S)
    assert up.process.returncode == Exit.CONFLICT
    assert '"message": "Pool fake is scheduled by another now."' in (up.folder / "up.log").read_text()


@pytest.mark.parametrize("drains", [False, True], ids=["at work", "on its way down"])
def test_it_ends_with_the_process_above(up, drains):
    child = scheduler(up.process.pid)
    if drains:
        up.process.send_signal(signal.SIGINT)
        assert any('"draining"' in line for line in up.process.stdout)
    up.process.send_signal(signal.SIGKILL)
    up.process.communicate()
    child.wait(WAIT_S)


def test_signals_are_for_the_process_above(up):
    child = scheduler(up.process.pid)
    assert os.getpgid(child.pid) != os.getpgid(up.process.pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child.send_signal(number)
    up.process.send_signal(signal.SIGTERM)
    up.process.communicate(timeout=WAIT_S)
    assert up.process.returncode == Exit.OK
    child.wait(WAIT_S)
    assert "scheduler" not in (up.folder / "up.log").read_text()


@pytest.mark.skipif(CORES < 2, reason="there is one core")
def test_each_of_the_two_keeps_to_one_core_and_engines_have_all(up):
    def cores(pid):
        """How many threads may run on which."""
        return Counter(frozenset(os.sched_getaffinity(int(task.name))) for task in Path(f"/proc/{pid}/task").iterdir())

    every = frozenset(os.sched_getaffinity(0))
    (engine,) = up.engines("fake")
    above, child = cores(up.process.pid), cores(scheduler(up.process.pid).pid)
    for found in (above, child):
        assert found.pop(every) <= 2  # jemalloc's, which is there before Python is
        assert sum(found.values()) > 8
    assert [len(one) for one in (*above, *child)] == [1, 1]
    assert above.keys() != child.keys()
    assert set(cores(engine.pid)) == {every}
