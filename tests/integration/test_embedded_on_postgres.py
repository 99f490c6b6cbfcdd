"""`nightmill run` on one machine with its database on a PostgreSQL server: the same job, killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.postgres import eventually, postgres_server

pytestmark = pytest.mark.integration

ROWS = 480
COMMAND = [sys.executable, "-c", "from api.cli.main import main; main()"]
SLOW = ("--engine-arg", "rows_per_s=250")


@pytest.fixture(scope="module")
def server():
    with postgres_server() as started:
        yield started


@pytest.fixture
def database(server):
    with server.new_database() as made:
        yield made


@pytest.fixture
def nightmill(database, tmp_path):
    """Starts a command line; `home` is its data directory."""
    pq.write_table(pa.table({"name": [f"thing {number}" for number in range(ROWS)]}), tmp_path / "in.parquet")
    env = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTMILL_")}
    env |= {"NIGHTMILL_HOME": str(tmp_path / "home"), "NIGHTMILL_DATABASE_URL": database.url}
    started = []

    def start(*words, **settings):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen([*COMMAND, *words], cwd=tmp_path, env=env | settings, text=True, **streams)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def run_line(*more):
    return ["run", "in.parquet", "--model", "fake", "--prompt", "{{ name }}", "--rows-per-task", "24", "--quiet", *more]


def told(process):
    """What a command printed that ended well."""
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    return out


def parts(database):
    return database.run("SELECT count(*) FROM parts")[0][0]


def has_begun(database):
    """The tables are made by the first command."""
    return database.run("SELECT to_regclass('parts') IS NOT NULL")[0][0] and parts(database) >= 3


def check(nightmill, database, tmp_path):
    """Every row once, priced, in an order book; nothing in a file of SQLite's."""
    (job,) = json.loads(told(nightmill("jobs", "--json")))
    status = json.loads(told(nightmill("status", job["job"], "--json")))
    assert status["state"] == "completed"
    table = pq.read_table(status["output"])
    assert sorted(table["row"].to_pylist()) == list(range(ROWS))
    assert database.run("SELECT count(*) FROM reservations WHERE state = 'open'") == [(0,)]
    told(nightmill("ledger", "verify"))
    assert not (tmp_path / "home" / "nightmill.db").exists()
    return status


def test_a_run_that_is_killed_is_resumed_and_every_row_is_there_once(nightmill, database, tmp_path):
    first = nightmill(*run_line(*SLOW))
    assert eventually(lambda: has_begun(database))
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = parts(database)
    assert 3 <= before < ROWS // 24
    told(nightmill("resume", "last", "--quiet", "--engine-arg", "rows_per_s=100000"))
    check(nightmill, database, tmp_path)
    assert parts(database) == ROWS // 24


@pytest.mark.parametrize("away_s", [0, 3])
def test_a_server_that_goes_away_under_a_run_delays_it_and_nothing_else(nightmill, database, server, tmp_path, away_s):
    """For longer, too, than the store itself tries again: then those who called it do."""
    run = nightmill(*run_line(*SLOW), NIGHTMILL_DATABASE_RETRY_S="10" if away_s == 0 else "0.3")
    assert eventually(lambda: has_begun(database))
    server.control("stop", "-m", "immediate")
    time.sleep(away_s)
    server.control("start")
    told(run)
    check(nightmill, database, tmp_path)
    waste = "SELECT count(*) FROM entries WHERE kind = 'waste'"
    assert database.run(waste) == [(0,)]


def test_the_doctor_looks_at_the_server_and_makes_nothing(nightmill, database):
    out, _ = nightmill("doctor").communicate(timeout=90)
    assert f"{database.url}, PostgreSQL" in out
    assert "no tables yet" in out
    assert "no synchronous standby" in out
    assert database.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
