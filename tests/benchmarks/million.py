"""A big Parquet file through `nightmill run` with the fake engine: rows/s, and memory and CPU time of every process.

Once with rows that share long beginnings, so that Nightmill sorts and stages them, and once with nothing to gain from
that, so that its tasks point into the input; a third time the first one's results are wanted in the input's order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from infra.sql import open_store
from tests.benchmarks import figures, nightmill, words

ROW_GROUP_ROWS = 100_000
SHARED, SHARED_CHARS, OWN_CHARS = 24, 220, 280
GOAL_ROWS_PER_S, GOAL_BYTES = 3000, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One pass over the file."""

    name: str
    options: tuple[str, ...]


WAYS = (
    Way(name="as it lies", options=("--prompt", "{{ title }}: {{ text }} ({{ guide }})")),
    Way(name="sorted by prefix", options=("--system", "{{ guide }}", "--prompt", "{{ title }}: {{ text }}")),
    Way(
        name="sorted, results in input order",
        options=("--system", "{{ guide }}", "--prompt", "{{ title }}: {{ text }}", "--order", "input"),
    ),
)


def run(folder: Path, *, rows: int) -> None:
    """Print one block of figures a way."""
    source = folder / "rows.parquet"
    write_rows(source, rows)
    print(
        f"{rows:,} rows of about {SHARED_CHARS + OWN_CHARS} bytes of prompt, {source.stat().st_size / 2**20:,.0f} MiB"
    )
    for way in WAYS:
        home = folder / f"home-{way.name.replace(' ', '-')}"
        options = [*way.options, "--model", "fake", "--max-tokens", "64"]
        ran = nightmill.run(home, source, folder / f"out-{home.name}", options)
        check(Path(ran.end["output"]), rows)
        _report(way, home, ran)


def write_rows(path: Path, rows: int) -> None:
    rng = np.random.default_rng(7)
    vocabulary = pa.array(words.WORDS)
    guides = pa.array([_of_length(rng, SHARED_CHARS) for _ in range(SHARED)])
    schema = pa.schema([("id", pa.int64()), ("guide", pa.string()), ("title", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        for start in range(0, rows, ROW_GROUP_ROWS):
            size = min(ROW_GROUP_ROWS, rows - start)
            columns = [
                pa.array(np.arange(start, start + size)),
                guides.take(pa.array(rng.integers(0, SHARED, size))),
                _texts(rng, vocabulary, size, 5),
                _texts(rng, vocabulary, size, OWN_CHARS // 6),
            ]
            out.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=size)


def _of_length(rng: np.random.Generator, chars: int) -> str:
    return " ".join(rng.choice(words.WORDS, chars // 5))[:chars]


def _texts(rng: np.random.Generator, vocabulary: pa.Array, size: int, count: int) -> pa.Array:
    columns = [vocabulary.take(pa.array(rng.integers(0, len(vocabulary), size))) for _ in range(count)]
    return pc.binary_join_element_wise(*columns, " ")


def check(output: Path, rows: int) -> None:
    """Every row once, and all of them ok."""
    found = ds.dataset(output, format="parquet")
    numbers = found.to_table(columns=["row"])["row"]
    manifest = json.loads((output / "_manifest.json").read_text())
    assert len(numbers) == rows, f"{len(numbers)} rows in {output}"
    assert pc.count_distinct(numbers).as_py() == rows, "a row is there twice"
    assert (pc.min(numbers).as_py(), pc.max(numbers).as_py()) == (0, rows - 1), "row numbers are wrong"
    assert (output / "_SUCCESS").exists(), manifest


def _report(way: Way, home: Path, ran: nightmill.Ran) -> None:
    rows = ran.end["rows"]
    print(
        f"\n{way.name}: {ran.rows_per_s:,.0f} rows/s (goal: {GOAL_ROWS_PER_S:,}), {ran.watched.wall_s:.1f} s in all, "
        f"first task committed after {_first_commit_s(home, ran):.1f} s "
        f"(others had {ran.watched.others:.0%} of the machine)"
    )
    lines = [
        [seen.name, f"{seen.peak_bytes / 2**20:,.0f} MiB", f"{seen.cpu_s:,.1f} s", f"{1e6 * seen.cpu_s / rows:,.1f} µs"]
        for seen in ran.watched.processes
    ]
    print(figures.table(["process", "peak memory (goal: under 1 GiB)", "CPU", "CPU a row"], lines), flush=True)


def _first_commit_s(home: Path, ran: nightmill.Ran) -> float:
    """From the start of the process to the first posting of the book."""
    store = open_store(home)
    try:
        first = next(iter(store.entries(job_id=ran.end["job"])))
    finally:
        store.close()
    return first.at - ran.watched.began_at
