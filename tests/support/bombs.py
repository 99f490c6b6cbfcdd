"""Parquet files that are small on disk and large in memory, made by pyarrow."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

MIB = 1 << 20


def written(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"compression": "zstd", **options})
    return sink.getvalue()


def repeated(text, times):
    """A column of one value, stored once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([text]))


def many_of_one(value_bytes=MIB, rows=100_000):
    """A few kilobytes that decode to value_bytes × rows."""
    table = pa.table({"x": repeated("x" * value_bytes, rows)}).replace_schema_metadata(None)
    return written(table, dictionary_pagesize_limit=2 * value_bytes, store_schema=False)


def large_dictionary(mib=64):
    """A dictionary that unpacks to so much."""
    values = pa.array([f"{n:04d}" + "x" * (MIB - 4) for n in range(mib)], pa.large_string())
    table = pa.table({"x": pa.DictionaryArray.from_arrays(pa.array(range(mib), pa.int32()), values)})
    return written(table, dictionary_pagesize_limit=2 << 30, store_schema=False)


def large_page(mib=300):
    """A page of plain values that unpacks to so much."""
    values = pa.array(["x" * MIB] * mib, pa.large_string())
    return written(
        pa.table({"x": values}), use_dictionary=False, data_page_size=1 << 30, write_batch_size=mib, store_schema=False
    )


def shared_prefixes(value_bytes=MIB, groups=60):
    """Values of which each says only that it is like the one before; a hundred in each row group."""
    values = pa.table({"x": pa.array(["x" * value_bytes] * 100)})
    sink = io.BytesIO()
    options = {"compression": "zstd", "use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}
    with pq.ParquetWriter(sink, values.schema, store_schema=False, **options) as out:
        for _ in range(groups):
            out.write_table(values)
    return sink.getvalue()


def deep(levels=200):
    """A column of lists of lists of …"""
    kind = pa.int8()
    for _ in range(levels):
        kind = pa.list_(kind)
    return written(pa.table({"x": pa.array([None], kind)}))


def broad(columns=5000):
    """Very many columns."""
    return written(pa.table({f"c{n}": pa.array([1], pa.int8()) for n in range(columns)}))


def one_row_of_all(values=4_000_000, value_bytes=1000):
    """One row of a list that has all the values, of which the dictionary holds one."""
    inner = repeated("y" * value_bytes, values)
    lists = pa.ListArray.from_arrays(pa.array([0, values], pa.int32()), inner)
    return written(pa.table({"x": lists}), store_schema=False)
