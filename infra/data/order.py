"""`--order input`: the rows of all parts again in the order of the input, with memory for one bucket of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.data.manifest import PublishedPart
from infra.data.parquet import writer
from jobs.errors import Exists
from jobs.model import Part
from jobs.ports.objects import Objects

BUCKET_ROWS = 262_144
BUCKET_BYTES = 64 << 20
"""In memory, as decoded; a file has far fewer bytes where values repeat."""
ROW_GROUP_ROWS = 65_536
READERS = 8
"""Parts that are read at a time: from S3 one takes tens of milliseconds, and nearly all of that is waiting."""
_BINS = 4096
_LEVEL = 3


class Bucket(NamedTuple):
    """Rows `first` ≤ row < `stop`."""

    first: int
    stop: int


def in_order(parts: Sequence[Part]) -> bool:
    """Whether the parts, as they are, can simply stand one after another. They come sorted by `first_row`."""
    if not all(part.ascending for part in parts):
        return False
    return all(a.last_row < b.first_row for a, b in pairwise(parts))


def restore_order(objects: Objects, folder: str, parts: Sequence[Part], schema: pa.Schema) -> Iterator[PublishedPart]:
    """Write `part-NNNNN.parquet` bucket by bucket."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="order") as readers:
        yield from _restored(objects, folder, parts, schema, readers)


def _restored(
    objects: Objects, folder: str, parts: Sequence[Part], schema: pa.Schema, readers: Executor
) -> Iterator[PublishedPart]:
    for number, bucket in enumerate(buckets(objects, parts, readers)):
        inside = [part for part in parts if part.first_row < bucket.stop and part.last_row >= bucket.first]
        found = list(readers.map(lambda part, bucket=bucket: _read(objects, part, bucket), inside))
        table = pa.concat_tables(found).cast(schema).combine_chunks()
        name = f"part-{number:05d}.parquet"
        # Half a file of a process that died belongs where it is cleared away at the end.
        size, checksum = _write(objects, f"{folder}/{name}", objects.scratch(f"{folder}/_parts/{name}"), table)
        span = pc.min_max(table["row"]).as_py()
        yield PublishedPart(
            name=name,
            rows=table.num_rows,
            size=size,
            checksum=checksum,
            first_row=span["min"],
            last_row=span["max"],
            task=None,
        )


def _write(objects: Objects, uri: str, local: Path, table: pa.Table) -> tuple[int, str]:
    """Size and sha256 of the sorted file; a row group at a time, so that no second copy of the bucket is made."""
    order = pc.sort_indices(table["row"])
    try:
        with writer(str(local), table.schema, level=_LEVEL) as out:
            for start in range(0, table.num_rows, ROW_GROUP_ROWS):
                places = order.slice(start, ROW_GROUP_ROWS)
                out.write_table(table.take(places), row_group_size=ROW_GROUP_ROWS)
        with local.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        size = local.stat().st_size
        try:
            objects.put_file_if_absent(uri, local)
        except Exists:
            # A crash may have left the file of another release's Parquet writer, with the same rows. Nobody relies on
            # it yet: there is no manifest.
            objects.delete(uri)
            objects.put_file_if_absent(uri, local)
    finally:
        local.unlink(missing_ok=True)
    return size, checksum


def buckets(objects: Objects, parts: Sequence[Part], readers: Executor) -> list[Bucket]:
    """Neighbouring stretches of row numbers, none with more rows than fit; from one pass over the `row` columns, or
    without one where all rows fit into one.
    """
    first = min(part.first_row for part in parts)
    last = max(part.last_row for part in parts)
    most = max(1, min(BUCKET_ROWS, BUCKET_BYTES // _row_bytes(objects, parts)))
    if sum(part.rows for part in parts) <= most:
        return [Bucket(first, last + 1)]
    # A bin is never wider than a quarter of a bucket, however dense its rows are.
    width = max(1, min(-(-(last - first + 1) // _BINS), most // 4 or 1))
    counts: dict[int, int] = {}
    for found in readers.map(lambda part: _bin_counts(objects, part, first, width), parts):
        for bin_number, count in found:
            counts[bin_number] = counts.get(bin_number, 0) + count
    made: list[Bucket] = []
    start, held = first, 0
    for bin_number in sorted(counts):
        if held and held + counts[bin_number] > most:
            made.append(Bucket(start, first + bin_number * width))
            start, held = first + bin_number * width, 0
        held += counts[bin_number]
    return [*made, Bucket(start, last + 1)]


def _row_bytes(objects: Objects, parts: Sequence[Part]) -> int:
    """What a row takes in memory, by three of the parts."""
    some = {parts[0].uri: parts[0], parts[len(parts) // 2].uri: parts[len(parts) // 2], parts[-1].uri: parts[-1]}
    sizes: list[int] = []
    for part in some.values():
        with objects.open(part.uri) as file:
            sizes.append(pq.read_table(file, pre_buffer=False, use_threads=False).nbytes // part.rows)
    return max(1, *sizes)


def _bin_counts(objects: Objects, part: Part, first: int, width: int) -> list[tuple[int, int]]:
    low, high = (part.first_row - first) // width, (part.last_row - first) // width
    if low == high:
        return [(low, part.rows)]
    with objects.open(part.uri) as file:
        rows = pq.read_table(file, columns=["row"], pre_buffer=False, use_threads=False)["row"]
    counts = pc.value_counts(pc.divide(pc.subtract(rows, first), width)).to_pylist()
    return [(entry["values"], entry["counts"]) for entry in counts]


def _read(objects: Objects, part: Part, bucket: Bucket) -> pa.Table:
    with objects.open(part.uri) as file:
        table = pq.read_table(file, pre_buffer=False, use_threads=False)
    if bucket.first <= part.first_row and part.last_row < bucket.stop:
        return table
    inside = pc.and_(pc.greater_equal(table["row"], bucket.first), pc.less(table["row"], bucket.stop))
    return table.filter(inside)
