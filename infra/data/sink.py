"""The part sink: one Parquet file for one lease of a task."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.data.parquet import write_table
from infra.data.schema import ANSWER, OUTPUT, typed_columns
from infra.data.settle import Checker, Columns, empty_typed, output_array, settle, void_columns
from infra.data.source import ParquetRowSource, RowTable
from infra.data.typed import TypedColumn
from infra.sql.blobs import SCHEME
from jobs.errors import StorageCorrupt
from jobs.model import Job, Outcome, Part, Task, Usage
from jobs.ports.engine import EngineResult
from jobs.ports.objects import Objects
from jobs.ports.rows import OpenRows, Results, Settled
from jobs.ranges import Ranges, from_rows, rows_of

VOID = "void"
"""In a part's name where that of a lease has its token."""


class ParquetPartSink:
    """Writes parts beside the job's results, under `_parts/`, which readers of the folder ignore.

    Safe to call from several threads. source: reads the rows of tasks that are given up.
    """

    def __init__(self, objects: Objects, source: ParquetRowSource) -> None:
        self._objects = objects
        self._source = source

    def write(
        self,
        job: Job,
        task: Task,
        rows: OpenRows,
        results: Sequence[EngineResult | None],
        *,
        unfinished: Outcome | None,
    ) -> Settled:
        made = _made(Results(job, task, rows, results), unfinished)
        if made.uri:
            self._objects.put_if_absent(made.uri, made.data)
        return made.settled

    def shares(self, job: Job) -> bool:
        """In the database. In another store each waits for its own, which may be away."""
        return job.spec.output.startswith(f"{SCHEME}:")

    def write_all(self, works: Sequence[Results]) -> list[Settled]:
        made = [_made(work, None) for work in works]
        self._objects.put_many([(one.uri, one.data) for one in made if one.uri])
        return [one.settled for one in made]

    def write_void(self, job: Job, task: Task, outcome: Outcome, code: str | None, message: str | None) -> Settled:
        uri = f"{parts_folder(job)}/{task.id}-{VOID}.parquet"
        if self._objects.facts(uri) is not None:
            # Written before a crash. The input may have gone since then, so it is not made again.
            return self._written(uri, task)
        table = self._source.open_void(job, task)
        columns = void_columns(len(table.rows), outcome, code, message)
        data = _file(job, table, columns, empty_typed(_typed(job), len(table.rows)))
        self._objects.put_if_absent(uri, data)
        part = _part(task, uri, data, _taken(table.rows, columns.places), columns.usage().outcomes)
        return Settled(part=part, usage=columns.usage(), left=())

    def _written(self, uri: str, task: Task) -> Settled:
        data = self._objects.read(uri)
        table = pq.read_table(pa.BufferReader(data), columns=["row", "outcome"])
        counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(table["outcome"]).to_pylist()}
        part = _part(task, uri, data, table["row"].combine_chunks(), counts)
        return Settled(part=part, usage=Usage(rows=part.rows, outcomes=counts), left=())


class _Made(NamedTuple):
    """uri: "" where no row is finished."""

    uri: str
    data: bytes
    settled: Settled


def _made(work: Results, unfinished: Outcome | None) -> _Made:
    """A part that is still to be put."""
    job, task, rows, results = work
    table: RowTable = rows.table
    typed = typed_columns(job.spec.schema, job.spec.kept)
    checker = Checker(rows.profiles, typed)
    kind = table.frozen.output.field(OUTPUT).type
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else 0 if pa.types.is_list(kind) else None
    columns = settle(job, rows, results, checker, unfinished=unfinished, embedding_size=size)
    left: Ranges = ()
    if len(columns.places) < rows.size:
        done = set(columns.places)
        left = from_rows(row for place, row in enumerate(rows_of(task.ranges)) if place not in done)
    if not columns.places:
        return _Made("", b"", Settled(part=None, usage=Usage(), left=left))
    values = dict(zip((c.column for c in typed), checker.arrays(), strict=True))
    data, uri = _file(job, table, columns, values), f"{parts_folder(job)}/{task.id}-{task.token}.parquet"
    part = _part(task, uri, data, _taken(table.rows, columns.places), columns.usage().outcomes)
    return _Made(uri, data, Settled(part=part, usage=columns.usage(), left=left))


def parts_folder(job: Job) -> str:
    """Where parts wait for the finaliser."""
    return f"{job.folder}/_parts"


def _typed(job: Job) -> tuple[TypedColumn, ...]:
    return typed_columns(job.spec.schema, job.spec.kept)


def _taken(column: pa.Array, places: Sequence[int]) -> pa.Array:
    return column if len(places) == len(column) else column.take(pa.array(places, pa.int64()))


def _file(job: Job, table: RowTable, columns: Columns, typed: Mapping[str, pa.Array]) -> bytes:
    schema = table.frozen.output
    if columns.answers and ANSWER not in schema.names:  # else they would be lost in silence
        raise StorageCorrupt(uri=table.frozen.folder.output_schema, reason=f"the column {ANSWER!r} is missing")
    kept = {new: column for (_, new), column in zip(job.spec.kept, table.kept, strict=True)}
    before: dict[str, Any] = {"row": table.rows, "input_row": table.input_rows, "custom_id": table.custom_ids, **kept}
    arrays = {name: _taken(column, columns.places) for name, column in before.items()}
    arrays |= {OUTPUT: output_array(columns.outputs, schema.field(OUTPUT).type), **typed, **columns.arrays(job)}
    return write_table(pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema))


def _part(task: Task, uri: str, data: bytes, rows: pa.Array, outcomes: Mapping[str, int]) -> Part:
    numbers: list[int] = rows.to_pylist()
    return Part(
        task=task.id,
        uri=uri,
        size=len(data),
        checksum=hashlib.sha256(data).hexdigest(),
        rows=len(numbers),
        first_row=min(numbers),
        last_row=max(numbers),
        ascending=all(a < b for a, b in pairwise(numbers)),
        outcomes=outcomes,
    )
