"""Readers that stand inside a row group and go on from there: the next task over it decodes nothing twice."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import accumulate
from typing import Protocol

import pyarrow as pa

from infra.data.lines import stretch_rows
from infra.data.parquet import batch_rows, open_parquet
from jobs.model import InputFile
from jobs.ports.objects import Objects

Key = tuple[str, str, tuple[str, ...]]


class Cursor(Protocol):
    """A place in a file. Moves forward inside a row group; used by one thread at a time."""

    key: Key
    group: int
    at: int

    def read(self, group: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows of a group from where the cursor stands or later (or of another group), in order."""
        ...

    def close(self) -> None: ...


class _Forward(ABC):
    """What both kinds share: skipping, cutting batches, and remembering the rest of one."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.group = -1
        self.at = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    @abstractmethod
    def _start(self, group: int) -> Iterator[pa.RecordBatch]:
        """All batches of a group."""

    def read(self, group: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        if group != self.group or start < self.at:
            self._batches, self._rest = self._start(group), None
            self.group, self.at = group, 0
        while self.at < stop:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                raise pa.ArrowInvalid(f"row group {group} ends at row {self.at}")
            first, last = max(0, start - self.at), min(batch.num_rows, stop - self.at)
            self.at += last
            self._rest = batch.slice(last) if last < batch.num_rows else None
            if first < last:
                yield batch.slice(first, last - first)


class ParquetCursor(_Forward):
    """Over one Parquet file and some of its columns."""

    def __init__(self, objects: Objects, file: InputFile, key: Key, rows: int | None = None) -> None:
        super().__init__(key)
        self._file = open_parquet(objects, file.uri, columns=len(key[2]))
        here = set(self._file.schema_arrow.names)
        self._columns = [name for name in key[2] if name in here]
        self._rows = min(rows or batch_rows(file), batch_rows(file))

    def _start(self, group: int) -> Iterator[pa.RecordBatch]:
        if not self._columns:  # all of them are missing in this file: only the count matters
            rows = self._file.metadata.row_group(group).num_rows
            return iter([pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])])
        # A column `a` also brings those of a top-level column `a.b`: `align` takes what was asked for.
        return iter(self._file.iter_batches(self._rows, [group], self._columns, use_threads=False))

    def close(self) -> None:
        self._file.close()


class LineCursor(_Forward):
    """Over one JSONL file; its row groups are stretches of lines."""

    def __init__(self, objects: Objects, file: InputFile, key: Key) -> None:
        super().__init__(key)
        self._file = objects.open(file.uri)
        self._sizes = file.row_group_bytes
        self._offsets = list(accumulate(file.row_group_bytes, initial=0))

    def _start(self, group: int) -> Iterator[pa.RecordBatch]:
        self._file.seek(self._offsets[group])
        yield from self._stretch(group)

    def _stretch(self, group: int) -> Iterator[pa.RecordBatch]:
        ids, bodies = [], []
        for custom_id, body in stretch_rows(self._file, 1 if group == 0 else 2, self._sizes[group]):
            ids.append(custom_id)
            bodies.append(body)
        yield pa.RecordBatch.from_pydict(
            {"custom_id": pa.array(ids, pa.string()), "body": pa.array(bodies, pa.string())}
        )

    def close(self) -> None:
        self._file.close()


class CursorPool:
    """Cursors at rest, the most recently used last. Safe to call from several threads."""

    def __init__(self, objects: Objects, size: int) -> None:
        self._objects = objects
        self._size = size
        self._rest: list[Cursor] = []
        self._lock = threading.Lock()

    def take(self, file: InputFile, columns: tuple[str, ...], group: int, start: int, *, lines: bool) -> Cursor:
        """The cursor that stands nearest before the place, else one that has the file open, else a new one."""
        key = (file.uri, file.stamp, columns)
        with self._lock:
            ahead = [c for c in self._rest if c.key == key and (c.group != group or c.at <= start)]
            if ahead:
                best = max(ahead, key=lambda c: (c.group == group, c.at if c.group == group else -c.at))
                self._rest.remove(best)
                return best
        return LineCursor(self._objects, file, key) if lines else ParquetCursor(self._objects, file, key)

    def give(self, cursor: Cursor) -> None:
        """Put a cursor to rest; the one that rested longest is closed if there are too many."""
        with self._lock:
            self._rest.append(cursor)
            old = self._rest.pop(0) if len(self._rest) > self._size else None
        if old is not None:
            old.close()

    def close(self) -> None:
        with self._lock:
            resting, self._rest = self._rest, []
        for cursor in resting:
            cursor.close()
