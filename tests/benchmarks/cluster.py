"""The cluster's whole path beside the embedded one: the same rows, the fake engine, rows/s and CPU of every process.

The cluster: Kafka, PostgreSQL, an S3 server and Ray, all on this machine; the rows come from S3 and go there. The
embedded run: SQLite and folders. Rounds interleave. Rates count from the job's record to its end, planning and
publishing among them; engines are up before.
"""

from __future__ import annotations

from pathlib import Path

import psutil
import pyarrow.compute as pc

from tests.benchmarks import figures, machine, million, nightmill, town
from tests.benchmarks.watch import Seen, Tree, watching

GOAL_ROWS_PER_S = 3000
PROMPT = ("--prompt", "{{ title }}: {{ text }} ({{ guide }})", "--max-tokens", "64")
SOURCE = "s3://catalog/rows.parquet"
POOLS = """
[pools.batch]
model = "fake"
num_cpus = 0.1
min_workers = {workers}
max_workers = {workers}
"""


def run(folder: Path, *, rows: int, rounds: int, workers: int) -> None:
    """Print a line a run, the processes of the cluster's last one, and the medians."""
    source = folder / "rows.parquet"
    million.write_rows(source, rows)
    print(f"{rows:,} rows, {source.stat().st_size / 2**20:,.0f} MiB; {workers} workers in the cluster")
    embedded, spread_out, seen = [], [], list[Seen]()
    with town.cluster(folder, POOLS.format(workers=workers)) as place:
        place.upload(source, SOURCE)
        for number in range(rounds):
            embedded.append(_embedded(folder, source, number))
            rate, seen = _cluster(place, rows)
            spread_out.append(rate)
    _report(seen, rows)
    print(f"\nembedded: {figures.spread(embedded, ',.0f')} rows/s, median (least to largest) of {rounds}")
    print(f"cluster:  {figures.spread(spread_out, ',.0f')} rows/s (goal: {GOAL_ROWS_PER_S:,})")
    print(f"cluster / embedded: {figures.ratio(spread_out, embedded)}")


def _embedded(folder: Path, source: Path, number: int) -> float:
    home = folder / f"home-{number}"
    ran = nightmill.run(home, source, folder / f"out-{number}", [*PROMPT, "--model", "fake"])
    million.check(Path(ran.end["output"]), ran.end["total_rows"])
    print(f"embedded: {ran.rows_per_s:,.0f} rows/s (others had {ran.watched.others:.0%} of the machine)", flush=True)
    return ran.rows_per_s


def _cluster(place: town.Place, rows: int) -> tuple[float, list[Seen]]:
    tree = Tree(psutil.Process())
    tree.begin()
    busy_s = machine.busy_s()
    with watching(tree):
        job = place.ended(place.submit(SOURCE, [*PROMPT, "--model", "fake", "--id", "id", "--output", "s3://results/"]))
    assert job.finished_at is not None
    wall_s = job.finished_at - job.created_at
    seen = tree.by_name()
    others_s = machine.busy_s() - busy_s - sum([one.cpu_s for one in seen])
    _check(place, job.folder, rows)
    rate = rows / wall_s
    others = max(0.0, others_s) / (wall_s * (psutil.cpu_count() or 1))
    print(f"cluster:  {rate:,.0f} rows/s (others had {others:.0%} of the machine)", flush=True)
    return rate, seen


def _check(place: town.Place, folder: str, rows: int) -> None:
    """Every row once."""
    numbers = place.column(folder, "row")
    found = (len(numbers), pc.count_distinct(numbers).as_py(), pc.min(numbers).as_py(), pc.max(numbers).as_py())
    assert found == (rows, rows, 0, rows - 1), f"{found} in {folder}"


def _report(seen: list[Seen], rows: int) -> None:
    print("\nthe cluster's processes in its last run")
    lines = [
        [one.name, f"{one.peak_bytes / 2**20:,.0f} MiB", f"{one.cpu_s:,.1f} s", f"{1e6 * one.cpu_s / rows:,.1f} µs"]
        for one in seen
        if 1e6 * one.cpu_s / rows >= 0.5
    ]
    print(figures.table(["process", "peak memory", "CPU", "CPU a row"], lines), flush=True)
