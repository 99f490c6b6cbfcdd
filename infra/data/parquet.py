"""Opening Parquet in bounded memory, with faults that name the file."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from infra.objects.s3_reader import EXACT_BYTES, RangeFile
from jobs.errors import BadInput, StorageFull, Unavailable
from jobs.model import InputFile
from jobs.ports.objects import ObjectFacts, Objects

MAGIC = b"PAR1"
BUFFER_BYTES = 1 << 20
"""Read-ahead of one column: with it and without pre-buffering a 408 MB row group takes 97 MiB instead of 487."""
BATCH_BYTES = 8 << 20
_BUFFERS_BYTES = 32 << 20
_COMPRESSION = "zstd"


def batch_rows(file: InputFile) -> int:
    """Rows to decode at once: about BATCH_BYTES of them, where they are widest."""
    return batch_rows_of(file.row_group_bytes, file.row_groups)


def batch_rows_of(sizes: Sequence[int], rows: Sequence[int]) -> int:
    """sizes, rows: of each row group. One that is wider than the others counts for all."""
    widest = max((size // max(1, count) for size, count in zip(sizes, rows, strict=False)), default=0)
    return max(16, min(16_384, BATCH_BYTES // max(1, widest)))


class OwnedFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """Closes what it reads from: pyarrow leaves a file object that it was given open."""

    def close(self, force: bool = True) -> None:  # noqa: FBT001, FBT002 - pyarrow's own signature
        super().close(force)

    def iter_batches(
        self, batch_size: int = 65_536, row_groups: Sequence[int] | None = None, *args: Any, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """As pyarrow's, a row group at a time: what it buffers before it decodes it buffers for all groups at once."""
        for group in range(self.num_row_groups) if row_groups is None else row_groups:
            yield from super().iter_batches(batch_size, [group], *args, **options)


def open_parquet(objects: Objects, uri: str, *, columns: int = 1) -> OwnedFile:
    """A reader that decodes as it goes. columns: how many will be read at once, since each has a buffer of its own.

    Raises BadInput if it is not Parquet, NotFound if it is not there.
    """
    source = objects.open(uri)
    try:
        return OwnedFile(source, **reading(source, columns))
    except (pa.ArrowException, OSError, ValueError) as error:
        source.close()
        if isinstance(error, OSError) and error.errno is not None:
            raise Unavailable(reason=f"{uri} cannot be read: {error}") from error
        reason = _why_not(objects, uri, str(error))
        raise BadInput(source=uri, reason=reason) from error


def reading(source: BinaryIO, columns: int = 1) -> dict[str, Any]:
    """How pyarrow is to read a file, in its own words, so that memory stays within bounds.

    A request to S3 takes longer than a megabyte. There the column chunks of a row group are fetched together, which
    takes a tenth of the time, unless they are too large to be held; then they are at least read in larger steps.
    """
    share = _BUFFERS_BYTES // max(1, columns)
    if not isinstance(source, RangeFile):
        return {"pre_buffer": False, "buffer_size": max(16 << 10, min(BUFFER_BYTES, share))}
    footer = pq.read_metadata(source)
    if _largest_group(footer, source.seek(0, io.SEEK_END)) <= _BUFFERS_BYTES:
        return {"metadata": footer, "pre_buffer": True}
    return {"metadata": footer, "pre_buffer": False, "buffer_size": max(EXACT_BYTES, min(4 * BUFFER_BYTES, share))}


def _largest_group(footer: pq.FileMetaData, size: int) -> int:
    """About its bytes in the file, by its share of what they decode to: to ask each column chunk takes seconds."""
    decoded = [footer.row_group(index).total_byte_size for index in range(footer.num_row_groups)]
    return size * max(decoded) // max(1, sum(decoded)) if decoded else 0


def _why_not(objects: Objects, uri: str, detail: str) -> str:
    with objects.open(uri) as file:
        head = file.read(4)
        size = file.seek(0, 2)
        file.seek(max(0, size - 4))
        tail = file.read(4)
    if not size:
        return "the file is empty"
    if head != MAGIC:
        return f"it is not a Parquet file (it begins with {head!r}, Parquet begins with {MAGIC!r})"
    if tail != MAGIC or size < 12:
        return f"the Parquet file is truncated: its last bytes are {tail!r} instead of {MAGIC!r}"
    return f"the Parquet file is damaged: {detail}"


def parquet_facts(objects: Objects, found: ObjectFacts) -> tuple[InputFile, pa.Schema]:
    """A file as it goes on the frozen list (its place in the whole still 0), and its schema. Raises BadInput."""
    with open_parquet(objects, found.uri) as file:
        return facts_of(file, found)


def facts_of(file: OwnedFile, found: ObjectFacts) -> tuple[InputFile, pa.Schema]:
    """As `parquet_facts`, of a file that is open already."""
    try:
        schema = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise BadInput(source=found.uri, reason=f"its schema cannot be read: {error}") from error
    if not len(schema):
        raise BadInput(source=found.uri, reason="it has no columns")
    footer = file.metadata
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    facts = InputFile(
        uri=found.uri,
        size=found.size,
        stamp=found.stamp,
        rows=footer.num_rows,
        first_row=0,
        row_groups=tuple(group.num_rows for group in groups),
        row_group_bytes=tuple(group.total_byte_size for group in groups),
    )
    return facts, schema.remove_metadata()


def write_table(table: pa.Table, *, row_group_rows: int | None = None, level: int = 1) -> bytes:
    """A small table as one Parquet file in memory."""
    sink = pa.BufferOutputStream()
    rows = max(1, table.num_rows if row_group_rows is None else row_group_rows)
    pq.write_table(table, sink, compression=_COMPRESSION, compression_level=level, row_group_size=rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow has no types


@contextmanager
def disk_errors(where: str) -> Iterator[None]:
    """Arrow reads and writes local files by itself: what the disk says of it, in our terms."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull(where=where) from error
        if error.errno is not None:
            raise Unavailable(reason=f"{where} cannot be read or written: {error}") from error
        raise


@contextmanager
def writer(path: str, schema: pa.Schema, *, level: int = 1) -> Iterator[pq.ParquetWriter]:
    """A writer for a file too large to be made in memory. Raises StorageFull."""
    with (
        disk_errors(path),
        pq.ParquetWriter(path, schema, compression=_COMPRESSION, compression_level=level) as out,
    ):
        yield out
