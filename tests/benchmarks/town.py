"""A whole cluster for a benchmark: Kafka, PostgreSQL, an S3 server and Ray of its own, and Nightmill up on them."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from infra.bootstrap import Home, open_home
from infra.deploy.cluster.town import ENVIRONMENT_FILE, SETTINGS_FILE, Town
from infra.settings import load
from jobs.model import Job
from tests.benchmarks.nightmill import COMMAND
from tests.benchmarks.watch import Watched, watched

LOOK_S = 0.2
PATIENCE_S = 1800.0
_EXPORT = re.compile(r"^export (\w+)='(.*)'$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Nightmill up on a cluster. env: what whoever talks to it needs; home: its data directory, opened."""

    folder: Path
    config: Path
    env: Mapping[str, str]

    @cached_property
    def home(self) -> Home:
        return open_home(load(environ=dict(os.environ), config=self.config))

    def nightmill(self, *words: str) -> Watched:
        """A command. Raises RuntimeError with its output when it fails."""
        log = self.folder / f"nightmill-{words[0]}.log"
        done = watched([*COMMAND, "--config", str(self.config), *words], env={**os.environ, **self.env}, log=log)
        if done.exit_code:
            msg = f"nightmill {' '.join(words)}: {done.exit_code}\n{done.stdout[-2000:]}{log.read_text()[-4000:]}"
            raise RuntimeError(msg)
        return done

    def submit(self, source: str, options: Sequence[str]) -> str:
        """The job's id."""
        return self.nightmill("submit", source, "--pause-on", "never", *options).stdout.split()[-1]

    def workers(self) -> list[dict[str, Any]]:
        """The running ones."""
        found = json.loads(self.nightmill("workers", "--json").stdout)
        return [worker for worker in found if worker["phase"] == "running"]

    def ended(self, job: str) -> Job:
        """The job, once it has. Raises RuntimeError when it pauses."""
        return until(lambda: self._ended(job), f"the end of {job}")

    def _ended(self, job: str) -> Job | None:
        found = self.home.store.job(job)
        if found.state == "paused":
            raise RuntimeError(f"{job} paused: {found.reason}")
        return found if found.state.terminal else None

    def upload(self, path: Path, uri: str) -> None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        boto3.client("s3", endpoint_url=self.home.settings.s3_endpoint).upload_file(str(path), bucket, key)

    def column(self, folder: str, name: str) -> pa.ChunkedArray:
        """A column of all published parts."""
        files = fs.S3FileSystem(endpoint_override=self.home.settings.s3_endpoint, allow_bucket_creation=False)
        where = folder.removeprefix("s3://")
        paths = [found.path for found in files.get_file_info(fs.FileSelector(where))]
        parts = sorted(path for path in paths if path.rpartition("/")[2].startswith("part-"))
        return pa.chunked_array(
            [pq.read_table(path, columns=[name], filesystem=files)[name].combine_chunks() for path in parts]
        )


@contextmanager
def cluster(folder: Path, pools: str, models: Sequence[Sequence[str]] = ()) -> Iterator[Place]:
    """Start everything, wait until every pool has its least workers running, and end everything.

    pools: TOML of the pools. models: words after `nightmill models add`, for models that are not shipped.
    """
    os.environ.setdefault("RAY_worker_niceness", "0")  # no contender steps back for another; Ray's own default is 15
    town = Town(folder / "town", say=lambda _: None)
    town.up()
    place: Place | None = None
    try:
        place = _up(town, pools, models)
        yield place
        place.home.close()
    finally:
        if place is not None:
            place.nightmill("down", "--timeout", "30")
        town.down()


def _up(town: Town, pools: str, models: Sequence[Sequence[str]]) -> Place:
    written = town.folder / SETTINGS_FILE
    config = town.folder / "benchmark.toml"
    config.write_text(written.read_text().split("# Pools:")[0] + "api_replicas = 0\n" + pools)
    env = dict(_EXPORT.findall((town.folder / ENVIRONMENT_FILE).read_text()))
    os.environ.update(env)
    place = Place(folder=town.folder, config=config, env=env)
    for words in models:
        place.nightmill("models", "add", *words)
    place.nightmill("up", "--cluster", "--detach")
    least = sum(pool.min_workers for pool in place.home.settings.pools)
    until(lambda: len(place.workers()) >= least, f"{least} workers")
    return place


def until(answer: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> Any:
    """The first true answer. Raises RuntimeError when none comes in time."""
    ends = time.monotonic() + within_s
    while not (found := answer()):
        if time.monotonic() > ends:
            raise RuntimeError(f"{what}: not within {within_s:g} s")
        time.sleep(LOOK_S)
    return found
