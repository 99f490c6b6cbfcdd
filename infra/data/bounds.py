"""What a Parquet file of a tenant may be, found out before a row of it is read.

Runs in a process of its own (`look_child.py`). What a file decodes to is not believed but bounded: from the sizes in
its page headers, and for what can grow (a dictionary, shared prefixes) from the longest value times how many there are.
These bounds go on the frozen list as the bytes of each row group, so that everything after, which reads and cuts by
them, sets aside for the worst that the file can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.data.pages import DICTIONARY_PAGE, BadPage, Page, longest_value, pages_of
from infra.data.parquet import OwnedFile, batch_rows_of
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
    """One column of one row group. pages: bytes of its pages, unpacked. fixed: bytes of any value, 0 for texts.

    found: values of the pages that were looked at. shared: of these, those that stand in the dictionary, of which the
    longest value has `longest` bytes. grown: what values may take beyond their own page.
    """

    name: str
    group: int
    values: int
    nested: bool
    fixed: int = 0
    pages: int = 0
    found: int = 0
    shared: int = 0
    longest: int = 0
    grown: int = 0

    @property
    def bound(self) -> int:
        unseen = max(0, self.values - self.found)
        texts = self.pages + self.grown + self.longest * (self.shared + unseen)
        return max(self.pages, self.fixed * self.values) if self.fixed else texts


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
        columns = [_top(reader, column) for column in range(footer.num_columns)]
        groups = [
            [self._chunk(footer, group, column, name) for column, name in enumerate(columns)]
            for group in range(footer.num_row_groups)
        ]
        chunks = [chunk for group in groups for chunk in group]
        pages = sum(chunk.pages for chunk in chunks)
        if pages > self._bounds.bytes:
            raise _beyond(self._uri, f"it unpacks to {pages:,} bytes", self._bounds.bytes)
        self._check_growth(reader, chunks)
        sizes = tuple(sum(chunk.bound for chunk in group) for group in groups)
        self._try_nested(reader, chunks, sizes)
        return sizes

    def _chunk(self, footer: pq.FileMetaData, group: int, column: int, name: str) -> _Chunk:
        found, schema, rows = (
            footer.row_group(group).column(column),
            footer.schema.column(column),
            footer.row_group(group),
        )
        nested = schema.max_repetition_level > 0
        if found.num_values < 0 or (not nested and found.num_values > rows.num_rows):
            raise self._damaged(name, f"it says that it has {found.num_values} values")
        fixed = _FIXED.get(found.physical_type, 0) or max(0, schema.length or 0)
        chunk = _Chunk(name=name, group=group, values=found.num_values, nested=nested, fixed=fixed)
        try:
            dictionary = self._look_at_pages(chunk, found)
        except BadPage as error:
            raise self._damaged(name, str(error)) from error
        if not fixed and dictionary is not None and (chunk.shared or chunk.found < chunk.values):
            chunk.longest = longest_value(self._file, dictionary, found.compression)
        return chunk

    def _look_at_pages(self, chunk: _Chunk, found: pq.ColumnChunkMetaData) -> Page | None:
        """The chunk's dictionary."""
        dictionary: Page | None = None
        for number, page in enumerate(pages_of(self._file, found, self._size)):
            self._check_page(chunk, page)
            chunk.pages += page.decoded
            if page.kind == DICTIONARY_PAGE:
                dictionary = page
            else:
                chunk.found += page.values
                chunk.shared += page.values if page.grows == "dictionary" else 0
                chunk.grown += page.values * page.decoded if page.grows == "prefix" else 0
            if self._enough(number):
                chunk.pages = max(chunk.pages, found.total_uncompressed_size)
                break
        return dictionary

    def _enough(self, number: int) -> bool:
        """Whether to stop behind this page of a chunk: over a network only the first two are looked at in any case."""
        if self._left is None:
            return False
        self._left -= 1
        return number >= 1 and self._left < 0

    def _check_page(self, chunk: _Chunk, page: Page) -> None:
        of_dictionary = page.kind == DICTIONARY_PAGE
        most = self._bounds.dictionary_bytes if of_dictionary else self._bounds.page_bytes
        if page.decoded > most:
            what = "dictionary" if of_dictionary else "page"
            raise _beyond(self._uri, f"a {what} of column {chunk.name!r} unpacks to {page.decoded:,} bytes", most)

    def _check_growth(self, reader: OwnedFile, chunks: Sequence[_Chunk]) -> None:
        """A file that may grow too much is looked at more closely: what do the values that are there come to?"""
        most = max(self._bounds.grown_bytes, self._bounds.growth * self._size)
        total = sum(chunk.bound for chunk in chunks)
        for chunk in sorted(chunks, key=lambda one: one.bound, reverse=True):
            if total <= most or chunk.nested or chunk.grown or not _is_text(reader, chunk.name):
                break
            total += self._grown(chunk, most - total + chunk.bound) - chunk.bound
        if total > most:
            raise _beyond(self._uri, f"its {self._size:,} bytes decode to {total:,} bytes or more", most)

    def _grown(self, chunk: _Chunk, most: int) -> int:
        """Bytes of the values of a flat column of texts, of which the dictionary stays as it is; counted until most."""
        found = chunk.pages
        reader = pq.ParquetFile(self._file, read_dictionary=[chunk.name], pre_buffer=False, buffer_size=MIB)
        for batch in reader.iter_batches(65_536, [chunk.group], [chunk.name], use_threads=False):
            column = batch.column(0)
            lengths = pc.binary_length(column.dictionary).cast(pa.int64())
            found += pc.sum(lengths.take(column.indices)).as_py() or 0
            if found > most:
                break
        return found

    def _try_nested(self, reader: OwnedFile, chunks: Sequence[_Chunk], sizes: Sequence[int]) -> None:
        """One row of a list may have all the values of its row group: whether they fit shows when they are decoded, in
        the steps in which a worker will. This process has a bound on its memory.
        """
        tried: dict[int, set[str]] = {}
        for chunk in chunks:
            if chunk.nested and chunk.bound > self._bounds.group_bytes:
                tried.setdefault(chunk.group, set()).add(chunk.name)
        steps = batch_rows_of(sizes, [reader.metadata.row_group(n).num_rows for n in range(len(sizes))])
        for group, names in tried.items():
            for _ in reader.iter_batches(steps, [group], sorted(names), use_threads=False):
                pass

    def _damaged(self, column: str, reason: str) -> BadInput:
        return BadInput(source=self._uri, reason=f"its column {column!r} is damaged: {reason}")


def _top(reader: OwnedFile, column: int) -> str:
    """The top-level column that a leaf belongs to; a dot may be part of a name."""
    path, names = str(reader.metadata.schema.column(column).path), set(reader.schema_arrow.names)
    while path not in names and "." in path:
        path = path.rpartition(".")[0]
    return path


def _is_text(reader: OwnedFile, name: str) -> bool:
    kind = reader.schema_arrow.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _beyond(uri: str, found: str, most: int) -> BadInput:
    return BadInput(source=uri, reason=f"{found}; {most:,} are taken")
