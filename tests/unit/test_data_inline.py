"""Rows that come in a request itself."""

import io

import pyarrow.parquet as pq
import pytest

from infra.data.inline import table_of
from jobs.errors import BadInput

pytestmark = pytest.mark.unit


def test_rows_become_a_parquet_file_in_which_what_a_row_lacks_is_null():
    data = table_of([{"a": 1}, {"a": 2, "b": ["x"], "c": None}])
    assert pq.read_table(io.BytesIO(data)).to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": ["x"], "c": None},
    ]


def test_the_same_rows_are_the_same_bytes():
    assert table_of([{"a": 1}]) == table_of([{"a": 1}])


@pytest.mark.parametrize(
    ("rows", "reason"),
    [([{}], "no columns"), ([{"a": 1}, {"a": "x"}], "column 'a'"), ([{"a": 1 << 70}], "column 'a'")],
)
def test_rows_that_are_no_table_are_refused_naming_the_column(rows, reason):
    with pytest.raises(BadInput, match=reason):
        table_of(rows)
