"""The inputs of these tests: a small catalog with a null here and there, and the same rows in other forms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 60
CUT = (7, 27, 47)
"""Rows whose name holds LONG: with `--engine-arg length_on=LONG` they are truncated."""
FAULTY = (13, 33)
"""Rows whose name holds FAULTY: with `--engine-arg error_on=FAULTY` they are errors."""
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "stars": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title", "stars", "tags"],
    "additionalProperties": False,
}


def catalog(rows: int = ROWS) -> pa.Table:
    """Two of its columns bear names of result columns."""
    return pa.table(
        {
            "sku": [f"sku-{n:04d}" for n in range(rows)],
            "name": [_name(n) for n in range(rows)],
            "price": pa.array([None if n % 5 == 0 else Decimal(n) / 4 for n in range(rows)], pa.decimal128(9, 2)),
            "tags": pa.array([["new", f"t{n % 3}"] if n % 4 else None for n in range(rows)], pa.list_(pa.string())),
            "made": pa.array(
                [datetime(2026, 1, 1 + n % 28, tzinfo=UTC) for n in range(rows)], pa.timestamp("ms", "UTC")
            ),
            "output": [f"an older text of {n}" for n in range(rows)],
            "Row": pa.array([1000 + n for n in range(rows)], pa.int32()),
        }
    )


def _name(number: int) -> str:
    mark = " LONG" if number in CUT else " FAULTY" if number in FAULTY else ""
    return f"Lamp {number}{mark}"


def make_inputs(folder: Path) -> Path:
    """goods.parquet; split/: its rows in three files; goods.jsonl: OpenAI batch lines; prompt.yaml; schema.json."""
    table = catalog()
    pq.write_table(table, folder / "goods.parquet", row_group_size=25)
    (folder / "split").mkdir()
    for number, (start, stop) in enumerate([(0, 20), (20, 21), (21, ROWS)]):
        pq.write_table(table.slice(start, stop - start), folder / f"split/goods-{number}.parquet")
    (folder / "goods.jsonl").write_text(lines(a_line(f"id-{n}", f"Sell {_name(n)}") for n in range(10)))
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "prompt.yaml").write_text(
        "messages:\n"
        "  - {role: system, content: You sell lamps.}\n"
        "  - {role: user, content: 'Describe {{ name }}{% if price is not none %} for {{ price }}{% endif %}.'}\n"
    )
    return folder


def a_line(custom_id: str, prompt: str, **body: Any) -> dict[str, Any]:
    """A line of an OpenAI batch input."""
    messages = [{"role": "user", "content": prompt}]
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "fake", "messages": messages, **body},
    }


def lines(entries: Iterable[Mapping[str, Any]]) -> str:
    """JSONL."""
    return "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries)
