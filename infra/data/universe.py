"""Which of the input's rows a job is about: all, or a selection; of these the first N; a seeded sample goes first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.data.index import sizes_of
from infra.data.parquet import write_table
from jobs.errors import Exists
from jobs.model import InputFile, JobSpec
from jobs.plan import PlanPolicy, even_stops, sample_positions, segment_stops
from jobs.ports.objects import Objects
from jobs.ranges import Range, Ranges, from_rows, minus


@dataclass(frozen=True, slots=True, kw_only=True)
class Universe:
    """A job's rows by position: all of the first `size` rows, or those of `selected` (int64, ascending)."""

    size: int
    selected: Any = None

    def ranges(self, start: int, stop: int) -> Ranges:
        """Row numbers of the rows at positions start ≤ p < stop."""
        if start >= stop:
            return ()
        if self.selected is None:
            return (Range(start, stop),)
        return from_rows(self.selected.slice(start, stop - start).to_pylist())

    def at(self, positions: Sequence[int]) -> Ranges:
        """Row numbers of the rows at these ascending positions."""
        if self.selected is None:
            return from_rows(positions)
        return from_rows(self.selected.take(pa.array(positions, pa.int64())).to_pylist())


def universe(objects: Objects, spec: JobSpec, input_rows: int) -> Universe:
    """The rows that a job must account for."""
    if spec.select is None:
        size, selected = input_rows * spec.copies, None
    else:
        selected = load_rows(objects, spec.select)
        size = len(selected)
    return Universe(size=size if spec.limit is None else min(size, spec.limit), selected=selected)


def total_rows(objects: Objects, spec: JobSpec, files: Sequence[InputFile]) -> int:
    """How many rows a job must account for (`Job.total_rows`)."""
    return universe(objects, spec, sum(file.rows for file in files)).size


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A job's segments. sample: rows of segment 0 when there is a sample; stops: ends of the others, by position."""

    universe: Universe
    sample: Ranges
    stops: Sequence[int]

    @property
    def segments(self) -> int:
        return len(self.stops) + (1 if self.sample else 0)

    def rows(self, segment: int) -> Ranges:
        """Row numbers of a segment."""
        if self.sample:
            if segment == 0:
                return self.sample
            segment -= 1
        start = self.stops[segment - 1] if segment else 0
        whole = self.universe.ranges(start, self.stops[segment])
        return minus(whole, self.sample) if self.sample else whole


def layout(objects: Objects, uri: str, spec: JobSpec, files: Sequence[InputFile], policy: PlanPolicy) -> Layout:
    """Where a job's segments lie. uri: where that is written down.

    The first answer stays: segments that another setting or another release cuts differently would overlap those that
    are planned already.
    """
    rows = sum(file.rows for file in files)
    found = universe(objects, spec, rows)
    row_bytes = sum(sum(sizes_of(file)) for file in files) // max(1, rows)
    if found.selected is None:
        groups = (pair for file in files for pair in zip(file.row_groups, sizes_of(file), strict=True))
        cuts = segment_stops(groups, copies=spec.copies, rows=found.size, policy=policy)
    else:
        cuts = even_stops(found.size, row_bytes=row_bytes, policy=policy)
    stops = _frozen_stops(objects, uri, cuts, whole=len(cuts) == 1 and not spec.sample)
    if not spec.sample:
        return Layout(universe=found, sample=(), stops=stops)
    sample = found.at(sample_positions(found.size, spec.sample, spec.seed))
    return Layout(universe=found, sample=sample, stops=stops if spec.sample < found.size else ())


def _frozen_stops(objects: Objects, uri: str, stops: Sequence[int], *, whole: bool) -> Sequence[int]:
    """whole: the job is one segment. Once that is planned nobody asks again, so it need not be written down."""
    if whole:
        return _read_stops(objects, uri) if objects.facts(uri) is not None else stops
    try:
        objects.put_if_absent(uri, json.dumps({"version": 1, "stops": list(stops)}).encode())
    except Exists:
        return _read_stops(objects, uri)
    return stops


def _read_stops(objects: Objects, uri: str) -> Sequence[int]:
    found: list[int] = json.loads(objects.read(uri))["stops"]
    return found


def save_rows(objects: Objects, uri: str, rows: Iterable[int]) -> int:
    """Write a selection (for a retry); how many rows it has."""
    column = pa.array(sorted(rows), pa.int64())
    objects.put_if_absent(uri, write_table(pa.table({"row": column}), row_group_rows=1 << 20))
    return len(column)


def load_rows(objects: Objects, uri: str) -> pa.Array:
    """A selection's row numbers, ascending."""
    with objects.open(uri) as file:
        column = pq.read_table(file, columns=["row"], pre_buffer=False)["row"]
    return column.combine_chunks()
