"""A cluster that many seeds are played on: Kafka, PostgreSQL, an S3 server behind a proxy with faults, and a local Ray
with Nightmill up on them, whose engine is the fake one.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from api.cli.main import run
from infra.bootstrap import Home, open_home
from infra.settings import load
from jobs.errors import Unavailable
from jobs.model import Job
from tests.chaos_cluster.weather import Weather
from tests.support.kafka import Broker
from tests.support.postgres import Database
from tests.support.s3 import BUCKET, KEYS, S3Server, shared_login
from workers.actors.cluster import Cluster
from workers.actors.common import Roster, workers_of
from workers.reports import Report

PREFIX, POOL = "chaos", "batch"
ROWS_PER_S = 1200
"""Of each of the two engines: slow enough that faults meet a job at work."""
SETTINGS = f"""
home = "home"
topic_prefix = "{PREFIX}"
lease_s = 6
beat_s = 1.5
hang_timeout_s = 4
segment_rows = 5000
drain_grace_s = 1
database_retry_s = 3
s3_timeout_s = 2
kafka_partitions = 2
kafka_publish_timeout_s = 3
kafka_answer_timeout_s = 3
kafka_session_s = 6
kafka_max_poll_s = 8
pool_idle_s = 3600
pool_backlog_s = 1
worker_backoff_s = 1

[pools.{POOL}]
model = "fake"
num_cpus = 0.1
min_workers = 2
max_workers = 2
dispatchers = 2
engine_args = {{ max_num_seqs = 64, rows_per_s = {ROWS_PER_S} }}
"""
PROMPT = "{{ topic }} Item {{ name }}, number {{ n }}."
ASK_S = 0.1
ANSWER_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Of a job: rows on its manifest, and how many tasks are in each state."""

    rows: int
    tasks: Mapping[str, int]


@dataclass(kw_only=True)
class Site:
    """Open it with `opened`. `store_server`: the S3 server without its proxy, `weather` its faults."""

    folder: Path
    broker: Broker
    database: Database
    store_server: S3Server
    weather: Weather
    home: Home
    cluster: Cluster
    config: Path
    _roster: Roster = field(default_factory=Roster)
    _client: Any = None
    _connection: Any = None
    _inputs: dict[int, str] = field(default_factory=dict)

    # ---- jobs -----------------------------------------------------------------------------------

    def submit(self, rows: int, *options: str) -> Job:
        words = ["submit", self._input(rows), "--model", "fake", "--prompt", PROMPT, "--id", "name"]
        words += ["--output", f"s3://{BUCKET}/results", *options]
        before = {job.id for job in self.home.store.jobs(limit=1)}
        assert self.command(*words) == 0
        job = self.home.store.jobs(limit=1)[0]
        assert job.id not in before
        return job

    def command(self, *words: str) -> int:
        return run(["--config", str(self.config), *words])

    def job(self, job: Job) -> Job | None:
        """None while the database does not answer."""
        with contextlib.suppress(Unavailable):
            return self.home.store.job(job.id)
        return None

    def is_over(self, job: Job) -> bool:
        """At its end, and `_SUCCESS` noted, which follows the end of the record."""
        with contextlib.suppress(Unavailable):
            store = self.home.store
            return store.job(job.id).state.terminal and all(other.id != job.id for other in store.unsealed())
        return False

    def standing(self, job: Job) -> Standing | None:
        """Past every layer of ours; None while the database does not answer."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(
                    self.database.url, autocommit=True, connect_timeout=1, options="-c statement_timeout=1000"
                )
            rows = self._connection.execute("SELECT coalesce(sum(rows), 0) FROM parts WHERE job = %s", (job.id,))
            tasks = self._connection.execute(
                "SELECT state, count(*) FROM tasks WHERE job = %s GROUP BY state ORDER BY state", (job.id,)
            )
            return Standing(rows=int(rows.fetchone()[0]), tasks=dict(tasks.fetchall()))
        except psycopg.Error:
            self._disconnect()
            return None

    def folder_of(self, job: Job) -> Mapping[str, bytes]:
        """All files below a job's folder, by name, asked of the server itself."""
        prefix = job.folder.removeprefix(f"s3://{BUCKET}/") + "/"
        found = {}
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
            for entry in page.get("Contents", []):
                body = self.client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
                found[entry["Key"].removeprefix(prefix)] = body
        return found

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = shared_login(self.store_server.options()).client
        return self._client

    def _input(self, rows: int) -> str:
        key = f"catalog/{rows}.parquet"
        if rows not in self._inputs:
            data = io.BytesIO()
            pq.write_table(catalog(rows), data, row_group_size=10_000)
            self.client.put_object(Bucket=BUCKET, Key=key, Body=data.getvalue())
            self._inputs[rows] = f"s3://{BUCKET}/{key}"
        return self._inputs[rows]

    # ---- workers --------------------------------------------------------------------------------

    def workers(self, phase: str = "running") -> list[dict[str, Any]]:
        return [worker for worker in self.cluster.ask("workers") if worker["phase"] == phase]

    def reports(self) -> Mapping[str, Report]:
        """Of the workers that answer at once, asked past the fleet."""
        return self._roster.reports(workers_of(POOL), timeout_s=ANSWER_S)

    def until(self, answer: Callable[[], object], what: str, seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while not answer():
            assert time.monotonic() < until, f"never came: {what}"
            time.sleep(ASK_S)

    def close(self) -> None:
        self.cluster.down(10)
        self._disconnect()
        self.home.close()
        ray.shutdown()
        self.weather.close()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        with contextlib.suppress(psycopg.Error):
            if connection is not None:
                connection.close()


def opened(folder: Path, broker: Broker, database: Database, server: S3Server) -> Site:
    """Up, with both workers running."""
    os.environ.update(KEYS)  # actors have the environment of their Ray
    weather = Weather(server)
    config = folder / "nightmill.toml"
    services = (
        f'database_url = "{database.url}"\nkafka_bootstrap = "{broker.address}"\n'
        f's3_endpoint = "{weather.endpoint}"\nobjects = "s3://{BUCKET}/own"\n'
    )
    config.write_text(services + SETTINGS)
    settings = load(environ={}, config=config)
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 << 20,
        namespace=f"{PREFIX}-cluster",
        log_to_driver=False,
        logging_level="error",
    )
    home = open_home(settings)
    home.example_prices("fake")
    cluster = Cluster(settings)
    cluster.attach()
    cluster.up()
    site = Site(
        folder=folder, broker=broker, database=database, store_server=server, weather=weather, home=home,
        cluster=cluster, config=config,
    )  # fmt: skip
    site.until(lambda: len(site.workers()) == 2, "two workers")
    return site


def catalog(rows: int) -> pa.Table:
    """A tenth of the rows begin with the same long words, and they lie scattered: ordering them pays."""
    topics = [f"Topic {number}: {'a long and even text about it ' * 4}" for number in range(10)]
    return pa.table(
        {
            "topic": [topics[n * 7 % 10] for n in range(rows)],
            "name": [f"item-{n:06d}" for n in range(rows)],
            "n": range(rows),
        }
    )
