"""Nightmill up on a Ray, as tests of a cluster need it: a data directory, jobs, and what became of them."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import ray

from api.cli.main import run
from infra.bootstrap import open_home
from infra.settings import load
from jobs.model import JobState
from workers.actors.cluster import Cluster

ROWS = 1600
SETTINGS = """
home = "home"
lease_s = 6
beat_s = 1
pool_idle_s = 2
pool_backlog_s = 1
drain_grace_s = 1
worker_backoff_s = 1
spot_notice = "going"
spot_poll_s = 0.5
task_max_rows = 100
"""
POOL = """
[pools.batch]
model = "fake"
num_cpus = 0.1
max_workers = 2
engine_args = { max_num_seqs = 16, row_latency_s = 0.08 }
"""


class Town:
    """A data directory, its settings, and Nightmill up on the local Ray."""

    def __init__(self, folder, settings="", pool=POOL, model="fake"):
        self.folder = folder
        self.model = model
        self.config = folder / "nightmill.toml"
        self.config.write_text(settings + SETTINGS + pool)
        self.settings = load(environ={}, config=self.config)
        self.home = open_home(self.settings)
        self.home.example_prices(model)
        self.cluster = Cluster(self.settings)
        self.cluster.attach()
        self.input = folder / "in.parquet"
        pq.write_table(pa.table({"id": range(ROWS), "x": [f"row {n}" for n in range(ROWS)]}), self.input)

    def command(self, *words):
        return run(["--config", str(self.config), *words])

    def submit(self, *options):
        words = ["submit", str(self.input), "--model", self.model, "--prompt", "say {{ x }}", "--id", "id"]
        assert self.command(*words, "--output", str(self.folder / "out"), *options) == 0
        return self.home.store.jobs(limit=1)[0]

    def job(self, job):
        return self.home.store.job(job.id)

    def until(self, answer, what, seconds=120.0):
        until = time.monotonic() + seconds
        while not answer():
            assert time.monotonic() < until, f"{what}: {self.facts()}"
            time.sleep(0.1)

    def facts(self):
        jobs = [(j.id, j.state, j.reason, j.usage.rows) for j in self.home.store.jobs(limit=3)]
        return jobs, self.workers()

    def until_rows(self, job, rows):
        self.until(lambda: self.job(job).usage.rows >= rows, f"{rows} rows of {job.id}")

    def workers(self, phase="running"):
        return [worker for worker in self.cluster.ask("workers") if phase in {None, worker["phase"]}]

    def completed(self, job):
        self.until(lambda: self.job(job).state.terminal, f"the end of {job.id}")
        return self.job(job)

    def targets(self):
        """What Prometheus finds in the data directory."""
        files = sorted((self.settings.home / "metrics").glob("*.json"))
        return [entry for file in files for entry in json.loads(file.read_text())]

    def figures(self, target):
        """What a target shows, as text; nothing if it is gone."""
        try:
            with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def kill(self, actor):
        """kill -9 of the actor's process, which its own answer names."""
        os.kill(ray.get(ray.get_actor(actor).pid.remote(), timeout=30), signal.SIGKILL)


def written(job):
    """custom_id → how often, over all published parts."""
    table = pa.concat_tables([pq.read_table(part) for part in sorted(Path(job.folder).glob("part-*.parquet"))])
    return sorted(table["custom_id"].to_pylist(), key=int)


def assert_whole(town, job):
    """Every row once, and a book that adds up."""
    done = town.completed(job)
    assert (done.state, done.usage.rows, dict(done.usage.outcomes)) == (JobState.COMPLETED, ROWS, {"ok": ROWS})
    assert written(done) == [str(n) for n in range(ROWS)]
    assert town.home.store.verify().faults == ()
    assert town.home.store.open_reservations(job.id) == {}


def wasted_tokens(town, job):
    return sum(entry.tokens for entry in town.home.store.entries(job_id=job.id) if entry.kind == "waste")
