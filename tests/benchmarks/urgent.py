"""How long a released row waits for the engine's door while a big batch job fills the topic and the engine.

A cluster with one worker whose fake engine takes some time for each token, and is full. Beside the batch job small jobs
of one row arrive, one after the other, of each priority. A wait ends when the row enters the engine; it is the worker's
own figure, counted from the release by the database's clock, and every service runs on this machine.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from api.cli.main import run as command
from jobs.model import Job, Priority
from tests.benchmarks import figures, million, town

GOAL_S = 0.25
BATCH, SINGLE = "s3://catalog/batch.parquet", "s3://catalog/single.parquet"
PAUSE_S = 0.3
SEATS, TOKEN_S, BATCH_ROWS = 64, 0.01, 200_000
POOLS = f"""
[pools.batch]
model = "fake"
num_cpus = 0.1
min_workers = 1
engine_args = {{ max_num_seqs = {SEATS}, token_latency_s = {TOKEN_S} }}
"""
OPTIONS = ("--model", "fake", "--prompt", "{{ title }}: {{ text }}", "--id", "id", "--output", "s3://results/")


def run(folder: Path, *, jobs: int) -> None:
    """Print a line a priority. jobs: small ones of each priority."""
    million.write_rows(folder / "batch.parquet", BATCH_ROWS)
    pq.write_table(pa.table({"id": [0], "title": ["A car"], "text": ["from 1970"]}), folder / "single.parquet")
    with town.cluster(folder, POOLS) as place:
        place.upload(folder / "batch.parquet", BATCH)
        place.upload(folder / "single.parquet", SINGLE)
        batch = _submit(place, BATCH, Priority.BATCH)
        town.until(lambda: place.home.store.job(batch).usage.rows >= 4 * SEATS, "a full engine")
        small = list(_arrive(place, jobs))
        ended = [place.ended(job) for job in small]
        assert not place.home.store.job(batch).state.terminal, "the batch job ended too early: make it longer"
        place.nightmill("cancel", batch)
        _report(ended, _waits(place.home.settings.log_file))


def _arrive(place: town.Place, jobs: int) -> Iterator[str]:
    """One after the other, the priorities mixed."""
    order = [priority for priority in (Priority.CRITICAL, Priority.HIGH, Priority.NORMAL) for _ in range(jobs)]
    random.Random(4).shuffle(order)
    for priority in order:
        yield _submit(place, SINGLE, priority)
        time.sleep(PAUSE_S)


def _submit(place: town.Place, source: str, priority: Priority) -> str:
    """In this process: to start another for each job would keep the machine busy."""
    out, told = io.StringIO(), io.StringIO()
    words = ["submit", source, *OPTIONS, "--priority", str(priority), "--pause-on", "never"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        code = command(["--config", str(place.config), *words])
    if code:
        raise RuntimeError(f"submit: {code}: {told.getvalue()}")
    return out.getvalue().split()[-1]


def _waits(log: Path) -> dict[str, list[float]]:
    """By priority: seconds from a task's release to its first row's entry."""
    found: dict[str, list[float]] = {}
    for line in log.read_text().splitlines():
        if '"task_enters"' in line:
            event = json.loads(line)
            found.setdefault(event["priority"], []).append(event["waited_s"])
    return found


def _report(ended: Sequence[Job], waits: dict[str, list[float]]) -> None:
    lines = []
    for priority in Priority:
        seen = waits.get(priority, [])
        whole = [job.finished_at - job.created_at for job in ended if job.priority is priority and job.finished_at]
        shown = [f"{_share(whole, share):.2f} s" for share in (0.5, 0.99)] if whole else ["", ""]
        lines.append([priority, str(len(seen)), *(f"{1000 * _share(seen, s):,.0f} ms" for s in (0.5, 0.99)), *shown])
    head = ["priority", "tasks", "to the door p50", "p99", "from submit to the job's end p50", "p99"]
    print(figures.table(head, lines))
    worst = _share(waits[Priority.CRITICAL], 0.99)
    print(f"critical p99: {1000 * worst:,.0f} ms to the engine's door (goal: at most {1000 * GOAL_S:.0f})", flush=True)


def _share(values: Sequence[float], share: float) -> float:
    """The value below which such a share of them lies."""
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1] if values[1:] else values[0]
