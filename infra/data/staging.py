"""Staged files: some input rows in the order in which they are to run, one row group a task.

Columns: `row`, `input_row`, then the needed input columns as c0, c1, … (their own names might be `row`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from infra.data.parquet import BUFFER_BYTES, disk_errors, writer
from infra.data.read import Rows
from jobs.errors import NotFound, StorageCorrupt
from jobs.ports.objects import Objects
from jobs.ranges import Ranges, rows_of

_PLACE = ("row", "input_row")


def staged_uri(folder: str, segment: int, ranges: Ranges, stops: Sequence[int]) -> str:
    """A name that says what is in the file, so that a crash between writing and recording it does no harm.

    A second attempt may cut other tasks (the model's speed is known by then): it writes another file.
    """
    content = f"{pa.__version__}:{ranges[0].start}:{ranges[-1].stop}:{','.join(map(str, stops))}"
    digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    return f"{folder}/s{segment:05d}-{digest}.parquet"


def write_staged(objects: Objects, uri: str, rows: Rows, order: pa.Array, stops: Sequence[int]) -> None:
    """Write the rows in this order, a row group for each stop. Done before with the same bytes: fine."""
    if objects.facts(uri) is not None:
        return
    local = objects.scratch(uri)
    names = list(rows.columns)
    fields = [(name, pa.int64()) for name in _PLACE]
    fields += [(f"c{number}", rows.columns[name].type) for number, name in enumerate(names)]
    schema = pa.schema(fields)
    try:
        with writer(str(local), schema) as out:
            start = 0
            for stop in stops:
                places = order.slice(start, stop - start)
                columns = [rows.rows, rows.input_rows, *rows.columns.values()]
                table = pa.Table.from_arrays([column.take(places) for column in columns], schema=schema)
                out.write_table(table, row_group_size=stop - start)
                start = stop
        objects.put_file_if_absent(uri, local)
    finally:
        local.unlink(missing_ok=True)


def read_staged(objects: Objects, uri: str, group: int, ranges: Ranges, needed: Sequence[str]) -> Rows:
    """A task's rows. Raises StorageCorrupt."""
    try:
        with (
            disk_errors(uri),
            objects.open(uri) as source,
            pq.ParquetFile(source, pre_buffer=False, buffer_size=BUFFER_BYTES) as file,
        ):
            table = file.read_row_group(group, use_threads=False)
    except NotFound as error:
        raise StorageCorrupt(uri=uri, reason="it is gone") from error
    except (pa.ArrowException, OSError) as error:
        raise StorageCorrupt(uri=uri, reason=str(error)) from error
    table = _cut(table, ranges)
    columns: Mapping[str, pa.Array] = {
        name: table.column(number + len(_PLACE)).combine_chunks() for number, name in enumerate(needed)
    }
    return Rows(rows=table["row"].combine_chunks(), input_rows=table["input_row"].combine_chunks(), columns=columns)


def _cut(table: pa.Table, ranges: Ranges) -> pa.Table:
    if len(ranges) == 1:
        start, stop = ranges[0]
        return table if stop - start == table.num_rows else table.slice(start, stop - start)
    return table.take(pa.array(list(rows_of(ranges)), pa.int64()))
