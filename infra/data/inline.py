"""Rows that came in a request itself, as the Parquet file that a job reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from infra.data.parquet import write_table
from jobs.errors import BadInput

_ROW_GROUP = 1 << 16


def table_of(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The same bytes for the same rows. A key that a row lacks is null there. Raises BadInput naming the column."""
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:
        raise BadInput(source="rows", reason="they have no columns")
    columns = {name: _column(name, [row.get(name) for row in rows]) for name in names}
    return write_table(pa.table(columns), row_group_rows=_ROW_GROUP)


def _column(name: str, values: list[Any]) -> pa.Array:
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise BadInput(source="rows", reason=f"column {name!r} has values of different kinds ({error})") from error
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column
