"""Rows that come in a request itself."""

import io

import pyarrow.parquet as pq
import pytest

from infra.data.inline import table_of
from jobs.errors import BadInput

pytestmark = pytest.mark.unit


def nested(levels):
    value = 1
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


def test_rows_become_a_parquet_file_in_which_what_a_row_lacks_is_null():
    data = table_of([{"a": 1}, {"a": 2, "b": ["x"], "c": None}])
    assert pq.read_table(io.BytesIO(data)).to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": ["x"], "c": None},
    ]


def test_what_is_nested_as_deep_as_may_be_can_be_read():
    rows = [{"a": nested(32)}]
    assert pq.read_table(io.BytesIO(table_of(rows))).to_pylist() == rows


def test_the_same_rows_are_the_same_bytes():
    assert table_of([{"a": 1}]) == table_of([{"a": 1}])


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{}], "no columns"),
        ([{"a": 1}, {"a": "x"}], "column 'a'"),
        ([{"a": 1 << 70}], "column 'a'"),
        ([{f"c{n}": 1 for n in range(2000)}, *[{"z": 1}] * 10_000], "2,001 different names are too many"),
        ([{"a": {f"c{n}": 1}} for n in range(5000)], "4,001 different names are too many"),
        ([{"a": [{f"c{n}": 1} for n in range(5000)]}], "4,001 different names are too many"),
        ([{"a": nested(33)}], "a value is nested more than 32 levels deep"),
        ([{"a": nested(500)}], "a value is nested more than 32 levels deep"),
    ],
)
def test_rows_that_are_no_table_are_refused_naming_the_column(rows, reason):
    with pytest.raises(BadInput, match=reason):
        table_of(rows)
