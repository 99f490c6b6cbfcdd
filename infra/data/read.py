"""Rows of the input by number, in bounded memory even inside a 4 GB row group; broken pages cost only their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from infra.data.cursors import CursorPool, ParquetCursor
from infra.data.index import InputIndex, Piece
from infra.data.inputs import LINE_SCHEMA, verify_unchanged
from infra.data.unify import align
from jobs.errors import InputChanged, NotFound, Unavailable
from jobs.model import InputFile
from jobs.ports.objects import Objects
from jobs.ports.rows import RowFault
from jobs.ranges import Range, Ranges, from_rows, rows_of

UNREADABLE = "input_unreadable"
_CAREFUL_ROWS = 64


class TooMuch(Exception):
    """The rows decode to more bytes than the caller has room for: its cue to ask for less."""


class Chunk(NamedTuple):
    """Neighbouring input rows. fault: why they could not be read (their columns are null then)."""

    first: int
    batch: pa.RecordBatch
    fault: str | None


@dataclass(slots=True, kw_only=True)
class Rows:
    """Some of a job's rows with their columns. faults: by place in here."""

    rows: pa.Array
    input_rows: pa.Array
    columns: Mapping[str, pa.Array]
    faults: dict[int, RowFault] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.rows)


class RowReader:
    """Reads input rows. Safe to call from several threads; keeps some cursors open for whoever reads on."""

    def __init__(self, objects: Objects, *, cursors: int = 8) -> None:
        self._objects = objects
        self._pool = CursorPool(objects, cursors)
        self._broken: dict[tuple[str, str, int], tuple[int, str]] = {}

    def close(self) -> None:
        self._pool.close()

    def rows(
        self,
        index: InputIndex,
        schema: pa.Schema,
        ranges: Ranges,
        columns: Sequence[str],
        *,
        copies: int = 1,
        limit_bytes: int | None = None,
    ) -> Rows:
        """Job rows by range: every input row `copies` times. Raises InputChanged, and TooMuch past `limit_bytes`."""
        rows = row_array(ranges)
        if copies == 1:
            found, faults = _joined(self._held(index, schema, ranges, columns, limit_bytes), columns, schema)
            return Rows(rows=rows, input_rows=rows, columns=found, faults=faults)
        input_rows = pc.divide(rows, copies)
        distinct = input_rows.dictionary_encode()  # ascending rows: each appears first in ascending order
        wanted = from_rows(distinct.dictionary.to_pylist())
        room = None if limit_bytes is None else limit_bytes // copies
        found, faults = _joined(self._held(index, schema, wanted, columns, room), columns, schema)
        places = distinct.indices
        spread = {name: column.take(places) for name, column in found.items()}
        moved = {i: faults[place] for i, place in enumerate(places.to_pylist()) if place in faults} if faults else {}
        return Rows(rows=rows, input_rows=input_rows, columns=spread, faults=moved)

    def _held(
        self, index: InputIndex, schema: pa.Schema, ranges: Ranges, columns: Sequence[str], limit_bytes: int | None
    ) -> list[Chunk]:
        held: list[Chunk] = []
        size = 0
        for chunk in self.chunks(index, schema, ranges, columns):
            held.append(chunk)
            size += chunk.batch.nbytes
            if limit_bytes is not None and size > limit_bytes:
                raise TooMuch
        return held

    def chunks(
        self, index: InputIndex, schema: pa.Schema, ranges: Sequence[Range], columns: Sequence[str]
    ) -> Iterator[Chunk]:
        """Input rows in order, a batch at a time, as the unified schema has them. Raises InputChanged."""
        names = tuple(columns)
        looked_at: str | None = None
        for piece in index.pieces(ranges):
            if piece.file.uri != looked_at:
                verify_unchanged(self._objects, piece.file)
                looked_at = piece.file.uri
            if names:
                yield from self._piece(piece, names, schema)

    def _piece(self, piece: Piece, names: tuple[str, ...], schema: pa.Schema) -> Iterator[Chunk]:
        file, group, start, stop, first = piece
        at = start
        broken = self._broken.get((file.uri, file.stamp, group))
        if broken is None or start < broken[0]:
            lines = schema is LINE_SCHEMA or schema.equals(LINE_SCHEMA)
            try:
                cursor = self._pool.take(file, names, group, start, lines=lines)
                try:
                    for batch in cursor.read(group, start, stop):
                        yield Chunk(first + at - start, align(batch, names, schema), None)
                        at += batch.num_rows
                except BaseException:
                    cursor.close()
                    raise
                self._pool.give(cursor)
            except NotFound as error:
                raise InputChanged(file=file.uri, reason="it is gone") from error
            except (pa.ArrowException, OSError, ValueError, KeyError) as error:
                reason = _damage(file, error)
                if not lines:
                    for batch in self._carefully(file, names, group, at, stop):
                        yield Chunk(first + at - start, align(batch, names, schema), None)
                        at += batch.num_rows
                if at < stop:  # else these rows were only in one batch with the damage
                    broken = self._broken[file.uri, file.stamp, group] = (at, reason)
        if at < stop:
            assert broken is not None
            why = f"{file.uri}, row group {group}: {broken[1]}"
            yield Chunk(first + at - start, _nulls(names, schema, stop - at), why)

    def _carefully(
        self, file: InputFile, names: tuple[str, ...], group: int, start: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows before the broken page, in small steps."""
        cursor = ParquetCursor(self._objects, file, (file.uri, file.stamp, names), _CAREFUL_ROWS)
        try:
            yield from cursor.read(group, start, stop)
        except (pa.ArrowException, OSError) as error:
            _damage(file, error)
        finally:
            cursor.close()


def _damage(file: InputFile, error: Exception) -> str:
    """The damage in words. A fault of the disk or the network (it has a number) is no damage: the task tries again."""
    if isinstance(error, OSError) and error.errno is not None:
        raise Unavailable(reason=f"{file.uri} cannot be read: {error}") from error
    return " ".join(str(error).split())[:300]


def _nulls(names: Sequence[str], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return align(pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""]), names, schema)


def _joined(
    chunks: Sequence[Chunk], columns: Sequence[str], schema: pa.Schema
) -> tuple[dict[str, pa.Array], dict[int, RowFault]]:
    if not columns:
        return {}, {}
    wanted = pa.schema([schema.field(name) for name in columns])
    whole = pa.concat_batches([c.batch for c in chunks]) if chunks else pa.RecordBatch.from_pylist([], schema=wanted)
    faults: dict[int, RowFault] = {}
    at = 0
    for chunk in chunks:
        if chunk.fault is not None:
            fault = RowFault(UNREADABLE, chunk.fault)
            faults.update(dict.fromkeys(range(at, at + chunk.batch.num_rows), fault))
        at += chunk.batch.num_rows
    return {name: whole.column(number) for number, name in enumerate(columns)}, faults


def row_array(ranges: Sequence[Range]) -> pa.Array:
    """Every row number of the ranges, as int64."""
    if len(ranges) == 1:
        return pa.array(range(*ranges[0]), pa.int64())
    return pa.array(list(rows_of(ranges)), pa.int64())
