"""The scheduling of `nightmill up` in a process of its own: what becomes of it, and of the batches, when one dies."""

import os
import random
import signal
import time

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

SEED, KILLS, BATCHES, LINES = 20261130, 5, 40, 3
WAIT_S = 30.0


def scheduler(parent=None):
    """The process that is there now, or None."""
    for child in psutil.Process(parent).children():
        try:
            if "workers.apart" in child.cmdline():
                return child
        except psutil.Error:
            continue
    return None


def test_batches_end_once_though_it_is_killed_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "_LEAST_S", 0.0)
    pause, died = random.Random(SEED), []
    with town(tmp_path, up_processes=2) as opened:
        client = opened.openai()
        batches = []
        for kill in range(KILLS):
            for _ in range(BATCHES // KILLS):
                file = client.files.create(file=("in.jsonl", some_lines(LINES)), purpose="batch")
                created = client.batches.create(
                    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
                )
                batches.append(created.id)
            until(lambda: (found := scheduler()) is not None and found.pid not in died, f"scheduler {kill}")
            time.sleep(pause.uniform(0.0, 2.5))
            process = scheduler()
            died.append(process.pid)
            process.kill()
        told = 0
        for name in batches:
            ended = until(
                lambda name=name: (one := client.batches.retrieve(name)).status == "completed" and one, f"end of {name}"
            )
            assert len(client.files.content(ended.output_file_id).text.splitlines()) == LINES
            told += ended.usage.output_tokens
        charged = opened.http(client.api_key).get("/v1/usage").json()["data"]
    assert len(set(died)) == KILLS
    assert sum(line["tokens"] for line in charged if line["token_class"] == "output") == told > 0


@pytest.fixture
def mill(tmp_path):
    home = a_home(tmp_path)

    opened = Embedded(home, [pool_for(home.registry.resolve("fake"))])
    opened.start()
    yield opened
    opened.close(5.0)
    home.close()


def test_one_that_dies_soon_after_its_start_ends_all_and_is_told(mill):
    scheduler().kill()
    assert mill.alarm.wait(WAIT_S)
    assert isinstance(mill.alarm.error, SchedulerEnded)
    assert mill.alarm.error.sentence == ("The scheduler's process ended: with exit code -9, soon after its start.")


@pytest.fixture
def up(tmp_path):
    with upped(tmp_path, 'api_port = 0\n[pools.fake]\nmodel = "fake"\nrequests = true\nmin_workers = 1\n') as opened:
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


def test_it_ends_with_the_process_above(up):
    child = scheduler(up.process.pid)
    assert os.getpgid(child.pid) != os.getpgid(up.process.pid)  # a terminal's Ctrl-C is not for it
    up.process.send_signal(signal.SIGKILL)
    up.process.communicate()
    child.wait(WAIT_S)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core")
def test_each_of_the_two_keeps_to_one_core_and_engines_have_all(up):
    above, child = psutil.Process(up.process.pid), scheduler(up.process.pid)
    (engine,) = up.engines("fake")
    assert [len(above.cpu_affinity()), len(child.cpu_affinity())] == [1, 1]
    assert above.cpu_affinity() != child.cpu_affinity()
    assert engine.cpu_affinity() == psutil.Process().cpu_affinity()
