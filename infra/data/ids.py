"""Are all ids there, and each only once? One pass in bounded memory; beyond a million ids, hash buckets on disk."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from infra.data.parquet import disk_errors
from infra.data.values import is_text
from jobs.errors import BadInput

IN_MEMORY = 1_000_000
_BUCKET_ROWS = 500_000
_MOST_BUCKETS = 256
_SHOWN = 5
_SCHEMA = pa.schema([("id", pa.large_string()), ("row", pa.int64())])


def id_texts(column: pa.Array) -> pa.Array | None:
    """Ids as text: integers and strings only, None for any other type."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_integer(kind) or is_text(kind):
        return column if pa.types.is_string(kind) else column.cast(pa.string())
    return None


class IdCheck:
    """Give it ids batch by batch, then `finish`. Use it in a `with`: it may have put files on disk.

    what: "column id", for the error; place: how an error names a row ("row 7"); expected: about how many rows come.
    """

    def __init__(self, *, source: str, what: str, place: Callable[[int], str], expected: int, scratch: Path) -> None:
        self._source = source
        self._what = what
        self._place = place
        self._scratch = scratch
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._buckets: _Buckets | None = None
        self._count = max(1, min(_MOST_BUCKETS, -(-expected // _BUCKET_ROWS)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._buckets is not None:
            self._buckets.close()

    def add(self, ids: pa.Array, rows: pa.Array) -> None:
        """ids: text; rows: where each stands. Raises BadInput at the first nulls."""
        if ids.null_count:
            nulls = [self._place(row) for row in rows.filter(ids.is_null())[:_SHOWN].to_pylist()]
            reason = f"{self._what} is null in {', '.join(nulls)}; every row needs an id"
            raise BadInput(source=self._source, reason=reason)
        self._held.append(pa.RecordBatch.from_arrays([ids.cast(pa.large_string()), rows], schema=_SCHEMA))
        self._held_rows += len(ids)
        if self._held_rows >= IN_MEMORY:
            if self._buckets is None:
                self._buckets = _Buckets(self._scratch, max(self._count, 2 * self._held_rows // _BUCKET_ROWS))
            self._buckets.add(pa.Table.from_batches(self._held))
            self._held, self._held_rows = [], 0

    def finish(self) -> None:
        """Raises BadInput naming the ids that stand more than once, and where; `again`: (id, second row) of each."""
        held = pa.Table.from_batches(self._held, schema=_SCHEMA)
        if self._buckets is None:
            self._check(held)
            return
        self._buckets.add(held)
        for table in self._buckets.tables():
            self._check(table)

    def _check(self, table: pa.Table) -> None:
        if pc.count_distinct(table["id"]).as_py() == table.num_rows:
            return
        groups = table.group_by("id").aggregate([("row", "min"), ("row", "count")])
        twice = groups.filter(pc.greater(groups["row_count"], 1)).sort_by("row_min").slice(0, _SHOWN)
        names = twice["id"].to_pylist()
        found = [self._describe(table, name) for name in names]
        reason = f"{self._what} must be unique, but {'; '.join(found)}"
        again = tuple((name, self._rows(table, name)[1].as_py()) for name in names)
        raise BadInput(source=self._source, reason=reason, again=again)

    @staticmethod
    def _rows(table: pa.Table, name: str) -> pa.ChunkedArray:
        return table.filter(pc.equal(table["id"], name))["row"].sort()

    def _describe(self, table: pa.Table, name: str) -> str:
        rows = self._rows(table, name)
        places = [self._place(row) for row in rows.slice(0, _SHOWN).to_pylist()]
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        return f"{name!r} stands in {', '.join(places)}{more}"


class _Buckets:
    """Equal ids fall into the same file."""

    def __init__(self, scratch: Path, count: int) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(dir=scratch, prefix="ids-")
        self._paths = [Path(self._folder.name, f"{number}.arrow") for number in range(count)]
        self._writers = [pa.ipc.new_stream(pa.OSFile(str(path), "wb"), _SCHEMA) for path in self._paths]

    def add(self, table: pa.Table) -> None:
        with disk_errors(self._folder.name):
            self._spread(table)

    def _spread(self, table: pa.Table) -> None:
        count = len(self._paths)
        for batch in table.to_batches(max_chunksize=1 << 18):
            numbers = pa.array([zlib.crc32(text.encode()) % count for text in batch["id"].to_pylist()], pa.int32())
            order = pc.sort_indices(numbers)
            ordered, sizes = batch.take(order), pc.value_counts(numbers)
            of = {entry["values"]: entry["counts"] for entry in sizes.to_pylist()}
            at = 0
            for number in sorted(of):
                self._writers[number].write_batch(ordered.slice(at, of[number]))
                at += of[number]

    def tables(self) -> list[pa.Table] | map[pa.Table]:
        for stream in self._writers:
            stream.close()
        return map(_read, self._paths)

    def close(self) -> None:
        self._folder.cleanup()


def _read(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as file:
        return pa.ipc.open_stream(file).read_all()
