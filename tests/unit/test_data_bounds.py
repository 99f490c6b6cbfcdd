"""What a tenant's Parquet can decode to bounds what is read, planned and sampled at once."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.data.bounds import Measure, ParquetBounds
from infra.data.index import InputIndex
from infra.data.pages import BadPage, pages_of
from infra.data.parquet import OwnedFile, batch_rows, batch_rows_of
from jobs.errors import BadInput
from jobs.model import InputFile
from jobs.ranges import Range
from tests.support import bombs

pytestmark = pytest.mark.unit


def a_file(sizes, rows, first_row=0):
    return InputFile(
        uri=f"file:///{first_row}", size=1, stamp="x", rows=sum(rows), first_row=first_row,
        row_groups=tuple(rows), row_group_bytes=tuple(sizes),
    )  # fmt: skip


def measured(content, **bounds):
    source = io.BytesIO(content)
    with OwnedFile(io.BytesIO(content), pre_buffer=False) as reader:
        far = bounds.pop("far", False)
        return Measure("x", source, len(content), far=far, bounds=ParquetBounds(**bounds)).groups(reader)


def test_one_wide_row_group_among_narrow_ones_sets_the_step():
    assert batch_rows_of([1000] * 9, [10] * 9) == 16_384
    assert batch_rows_of([1000, 1 << 20], [10, 10]) == 80
    assert batch_rows_of([1000, 80 << 20], [10, 10]) == 16
    assert batch_rows(a_file((), ())) == 16_384


def test_rows_are_as_wide_as_the_widest_row_group_that_they_touch():
    index = InputIndex([a_file((1000, 50_000), (10, 10)), a_file((9_000_000,), (3,), first_row=20)])
    found = [index.row_bytes([Range(*span)]) for span in ((0, 10), (0, 11), (15, 20), (19, 21), (20, 23))]
    assert (found, index.row_bytes([])) == ([100, 5000, 5000, 3_000_000, 3_000_000], 0)


def test_a_dictionary_s_longest_value_counts_for_every_value_that_may_be_it():
    (size,) = measured(bombs.many_of_one(value_bytes=1000, rows=5000))
    assert 5_000_000 <= size < 5_100_000


def test_plain_values_count_for_their_pages_and_numbers_for_their_width():
    table = pa.table({"s": [f"row {n}" for n in range(5000)], "n": range(5000), "b": [True] * 5000})
    (size,) = measured(bombs.written(table, use_dictionary=["n"]))
    text, numbers, flags = 5000 * 4 + sum(len(f"row {n}") for n in range(5000)), 5000 * 8, 5000
    assert text + numbers + flags <= size < 1.2 * (text + numbers + flags)


def test_over_a_network_what_was_not_looked_at_counts_for_the_worst():
    table = pa.table({"s": ["x" * 100 if n % 500 == 0 else "y" for n in range(5000)]})
    content = bombs.written(table, data_page_size=64, row_group_size=1000)
    near, far, farther = (
        measured(content, far=far, far_headers=most) for far, most in ((False, 0), (True, 10**6), (True, 0))
    )
    assert (near == far, len(near), all(a >= b for a, b in zip(farther, near, strict=True))) == (True, 5, True)


def test_a_column_chunk_that_claims_values_that_are_not_there_is_damaged():
    content = bytearray(bombs.written(pa.table({"x": ["abc"] * 100}), use_dictionary=False, compression="none"))
    start = content.index(b"abc")
    content[4:start] = bytes(start - 4)  # the page header
    with pytest.raises(BadInput, match="its column 'x' is damaged"):
        measured(bytes(content))


@pytest.mark.parametrize("cut", [5, 20, 60])
def test_pages_that_end_early_are_bad_pages(cut):
    content = bombs.written(pa.table({"x": ["abc" * 10] * 100}), use_dictionary=False)
    chunk = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    with pytest.raises(BadPage):
        list(pages_of(io.BytesIO(content[:cut]), chunk, cut))


@pytest.mark.parametrize("name", ["a.b", "a", "x y"])
def test_a_dot_in_a_column_s_name_is_part_of_it(name):
    table = pa.table({name: bombs.repeated("v" * 1000, 500), "a.c": pa.nulls(500, pa.int8())})
    with pytest.raises(BadInput, match="bytes decode to 5"):
        measured(bombs.written(table, store_schema=False), grown_bytes=10_000, growth=1)
