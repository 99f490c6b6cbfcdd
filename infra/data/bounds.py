"""What a Parquet file of a tenant may be, found out before a row of it is read.

Runs in a process of its own (`look_child.py`). What a file decodes to is not believed but bounded: from the sizes in its
page headers, and for what can grow (a dictionary, shared prefixes) from the longest value times the number of values.
These bounds go on the frozen list as the bytes of each row group, so that everything after, which reads and cuts by
them, sets aside for the worst that the file can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.data.pages import DICTIONARY_PAGE, BadPage, Page, longest_value, pages_of
from infra.data.parquet import OwnedFile
from infra.data.values import is_text
from jobs.errors import BadInput
from jobs.model import Value

_FIXED = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_TAIL = 8
"""Bytes at a file's end: the footer's length, and what says that it is Parquet."""
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetBounds(Value):
    """rows, columns (leaves), depth (of a column's path), groups, footer_bytes, page_bytes and dictionary_bytes (as
    unpacked): of a file, at most. bytes: of all its pages as unpacked.

    growth: a file may decode to so many times its size, where that is more than grown_bytes. group_bytes: a nested
    column of one row group that may decode to more is decoded on trial. far_headers: page headers of one file that are
    read over a network, where each takes its time; what lies beyond is bounded by its own chunk's first pages.
    """

    rows: int = 1_000_000_000
    columns: int = 2000
    depth: int = 32
    groups: int = 100_000
    footer_bytes: int = 64 * MIB
    page_bytes: int = 256 * MIB
    dictionary_bytes: int = 16 * MIB
    bytes: int = 4096 * GIB
    growth: int = 100_000
    grown_bytes: int = 4 * GIB
    group_bytes: int = GIB
    far_headers: int = 4000


def check_footer_size(uri: str, file: BinaryIO, size: int, bounds: ParquetBounds) -> None:
    """Before the footer is parsed. Raises BadInput."""
    file.seek(max(0, size - _TAIL))
    length = int.from_bytes(file.read(_TAIL)[:4], "little")
    if length > bounds.footer_bytes:
        raise _beyond(uri, f"its footer has {length:,} bytes", bounds.footer_bytes)
    file.seek(0)


def check_shape(uri: str, footer: pq.FileMetaData, bounds: ParquetBounds) -> None:
    """What the footer says of itself. Raises BadInput."""
    depth = max((footer.schema.column(n).path.count(".") + 1 for n in range(footer.num_columns)), default=0)
    for what, found, most in (
        ("rows", footer.num_rows, bounds.rows),
        ("columns", footer.num_columns, bounds.columns),
        ("row groups", footer.num_row_groups, bounds.groups),
        ("levels of nesting", depth, bounds.depth),
    ):
        if not 0 <= found <= most:
            raise _beyond(uri, f"it has {found:,} {what}", most)


@dataclass(slots=True, kw_only=True)
class _Chunk:
    """One column of one row group. pages: bytes of its pages; wide: bytes of a value that may be there `values` times."""

    column: int
    group: int
    values: int
    nested: bool
    pages: int = 0
    wide: int = 0

    @property
    def bound(self) -> int:
        return self.pages + self.wide * self.values


class Measure:
    """Bounds what a file decodes to. far: reading a page header takes a request over a network."""

    def __init__(self, uri: str, file: BinaryIO, size: int, *, far: bool, bounds: ParquetBounds) -> None:
        self._uri = uri
        self._file = file
        self._size = size
        self._bounds = bounds
        self._left = bounds.far_headers if far else None

    def groups(self, reader: OwnedFile) -> tuple[int, ...]:
        """Bytes that each row group can decode to. Raises BadInput for what is beyond the bounds."""
        footer = reader.metadata
        chunks = [
            [self._chunk(footer, group, column) for column in range(footer.num_columns)]
            for group in range(footer.num_row_groups)
        ]
        pages = sum(chunk.pages for group in chunks for chunk in group)
        if pages > self._bounds.bytes:
            raise _beyond(self._uri, f"it unpacks to {pages:,} bytes", self._bounds.bytes)
        self._check_growth(reader, [chunk for group in chunks for chunk in group])
        self._try_nested(reader, [chunk for group in chunks for chunk in group])
        return tuple(sum(chunk.bound for chunk in group) for group in chunks)

    def _chunk(self, footer: pq.FileMetaData, group: int, column: int) -> _Chunk:
        found, schema = footer.row_group(group).column(column), footer.schema.column(column)
        nested = schema.max_repetition_level > 0
        if not 0 <= found.num_values or (not nested and found.num_values > footer.row_group(group).num_rows):
            raise self._damaged(found, f"it says that it has {found.num_values} values")
        chunk = _Chunk(column=column, group=group, values=found.num_values, nested=nested)
        chunk.wide = _FIXED.get(found.physical_type, 0) or (schema.length or 0)
        grows = found.physical_type == "BYTE_ARRAY"
        dictionary: Page | None = None
        used = ""
        try:
            for number, page in enumerate(pages_of(self._file, found, self._size)):
                self._check_page(found, page)
                chunk.pages += page.decoded
                if page.kind == DICTIONARY_PAGE:
                    dictionary = page
                elif grows and page.grows == "prefix":
                    chunk.wide = max(chunk.wide, page.decoded)
                used = used or page.grows
                if self._enough(number):
                    chunk.pages = max(chunk.pages, found.total_uncompressed_size)
                    break
        except BadPage as error:
            raise self._damaged(found, str(error)) from error
        if grows and dictionary is not None and (used == "dictionary" or self._left is not None):
            chunk.wide = max(chunk.wide, longest_value(self._file, dictionary, found.compression))
        return chunk

    def _enough(self, number: int) -> bool:
        """Whether to stop behind this page of a chunk: over a network only the first two are looked at in any case."""
        if self._left is None:
            return False
        self._left -= 1
        return number >= 1 and self._left < 0

    def _check_page(self, chunk: pq.ColumnChunkMetaData, page: Page) -> None:
        of_dictionary = page.kind == DICTIONARY_PAGE
        most = self._bounds.dictionary_bytes if of_dictionary else self._bounds.page_bytes
        if page.decoded > most:
            what = "dictionary" if of_dictionary else "page"
            reason = f"a {what} of column {chunk.path_in_schema} unpacks to {page.decoded:,} bytes"
            raise _beyond(self._uri, reason, most)

    def _check_growth(self, reader: OwnedFile, chunks: Sequence[_Chunk]) -> None:
        """A file that may grow too much is looked at more closely: what do the values that are there come to?"""
        most = max(self._bounds.grown_bytes, self._bounds.growth * self._size)
        total = sum(chunk.bound for chunk in chunks)
        for chunk in sorted(chunks, key=lambda one: one.bound, reverse=True):
            if total <= most:
                return
            kind = reader.schema_arrow.field(_top(reader, chunk.column)).type if not chunk.nested else None
            total -= chunk.bound
            if kind is not None and (is_text(kind) or pa.types.is_binary(kind)):
                total += self._grown(reader, chunk, most - total)
            else:
                total += chunk.bound
                break
        if total > most:
            raise _beyond(self._uri, f"its {self._size:,} bytes decode to {total:,} bytes or more", most)

    def _grown(self, reader: OwnedFile, chunk: _Chunk, most: int) -> int:
        """Bytes of the values of a flat column of texts, of which the dictionary is kept as it is; counted until most."""
        name, found = _top(reader, chunk.column), 0
        with OwnedFile(self._file, read_dictionary=[name], pre_buffer=False, buffer_size=MIB) as dictionaries:
            for batch in dictionaries.iter_batches(65_536, [chunk.group], [name], use_threads=False):
                column = batch.column(0)
                lengths = pc.binary_length(column.dictionary).cast(pa.int64())
                found += pc.sum(lengths.take(column.indices)).as_py() or 0
                if found > most:
                    break
        return chunk.pages + found

    def _try_nested(self, reader: OwnedFile, chunks: Sequence[_Chunk]) -> None:
        """One row of a list may have all the values of its row group: whether they fit shows only when they are decoded,
        as a worker will. This process has a bound on its memory.
        """
        tried = {
            (chunk.group, _top(reader, chunk.column))
            for chunk in chunks
            if chunk.nested and chunk.bound > self._bounds.group_bytes
        }
        for group, name in sorted(tried):
            for _ in reader.iter_batches(16, [group], [name], use_threads=False):
                pass

    def _damaged(self, chunk: pq.ColumnChunkMetaData, reason: str) -> BadInput:
        return BadInput(source=self._uri, reason=f"its column {chunk.path_in_schema} is damaged: {reason}")


def _top(reader: OwnedFile, column: int) -> Any:
    """The top-level column that a leaf belongs to."""
    return reader.metadata.schema.column(column).path.partition(".")[0]


def _beyond(uri: str, found: str, most: int) -> BadInput:
    return BadInput(source=uri, reason=f"{found}; {most:,} are taken")
