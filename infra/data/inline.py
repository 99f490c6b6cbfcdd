"""Rows that came in a request itself, as the Parquet file that a job reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from infra.data.parquet import write_table
from jobs.errors import BadInput

_ROW_GROUP = 1 << 16
_MOST_CELLS = 16_000_000
"""Objects times the names in any of them. A body is bounded in bytes, but of objects that each have a few names of
many, columns make as many values as if each had all.
"""
_MOST_DEPTH = 32
"""Lists and objects in each other; readers of Parquet refuse a hundred levels, and a list makes two."""


def table_of(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The same bytes for the same rows. A key that a row lacks is null there. Raises BadInput naming the column."""
    shape = _Place()
    for row in rows:
        shape.add(row, _MOST_DEPTH)
    if not shape.names:
        raise BadInput(source="rows", reason="they have no columns")
    columns = {name: _column(name, [row.get(name) for row in rows]) for name in shape.names}
    return write_table(pa.table(columns), row_group_rows=_ROW_GROUP)


@dataclass(slots=True)
class _Place:
    """What is at one place of all rows. objects: how many of its values are objects; names: what is inside them, and
    the places of what is no plain value; items: the place of what is in its lists.
    """

    objects: int = 0
    names: dict[str, _Place | None] = field(default_factory=dict)
    items: _Place | None = None

    def add(self, value: Any, levels: int) -> None:
        if levels < 0:
            raise BadInput(source="rows", reason=f"a value is nested more than {_MOST_DEPTH} levels deep")
        if isinstance(value, list):
            for item in value:
                if isinstance(item, (dict, list)):
                    self.items = self.items or _Place()
                    self.items.add(item, levels - 1)
            return
        self.objects += 1
        for name, inner in value.items():
            place = self.names.setdefault(name, None)
            if isinstance(inner, (dict, list)):
                place = self.names[name] = place or _Place()
                place.add(inner, levels - 1)
        if self.objects * len(self.names) > _MOST_CELLS:
            reason = f"{self.objects:,} objects with {len(self.names):,} different names are too many"
            raise BadInput(source="rows", reason=reason)


def _column(name: str, values: list[Any]) -> pa.Array:
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise BadInput(source="rows", reason=f"column {name!r} has values of different kinds ({error})") from error
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column
