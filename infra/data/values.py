"""How a value of a column reads in a prompt, and the way there from Arrow. docs/templates.md says the same to users.

| type | in `{{ x }}` | in Jinja code |
|---|---|---|
| null | nothing (the empty text) | `none` |
| bool | `true`, `false` | bool |
| integer | `42` | int |
| float | shortest text that reads back the same: `0.1`, `8.0`, `nan`, `inf` | float |
| string | itself | str |
| decimal | plain notation with its own scale: `1.50` | Decimal |
| date, time, timestamp | ISO 8601: `2024-05-01`, `12:30:00`, `2024-05-01T12:30:00+02:00` | date, time, datetime |
| duration | `1 day, 0:00:05` | timedelta |
| binary | base64 | bytes |
| list, struct, map | JSON with the rules above inside (null stays `null`) | list, dict |
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

MAX_JSON = orjson.OPT_NON_STR_KEYS


def text_of(value: Any) -> str:
    """The text of one value. A type not in the table has Python's text (strict undefined raises there)."""
    found = _TEXT.get(type(value))
    return found(value) if found is not None else str(value)


def _json(value: Any) -> str:
    return orjson.dumps(value, default=_json_leaf, option=MAX_JSON).decode()


def _json_leaf(value: Any) -> Any:
    if isinstance(value, bytes | Decimal | dt.timedelta):
        return text_of(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


_TEXT: dict[type, Callable[[Any], str]] = {
    str: lambda value: value,
    type(None): lambda _: "",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    Decimal: lambda value: format(value, "f"),
    bytes: lambda value: base64.b64encode(value).decode(),
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
    dt.datetime: dt.datetime.isoformat,
    list: _json,
    dict: _json,
    tuple: _json,
}


def is_text(kind: pa.DataType) -> bool:
    """Any Arrow type whose values are UTF-8 text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type to convert to before Python: no dictionaries or extensions, no nanoseconds (they would need pandas)."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    for asked, plain_of in _PLAIN:
        if asked(kind):
            return plain_of(kind)
    return kind


def _plain_struct(kind: pa.StructType) -> pa.DataType:
    return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (pa.types.is_timestamp, lambda kind: pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind),
    (pa.types.is_time64, lambda _: pa.time64("us")),
    (pa.types.is_duration, lambda _: pa.duration("us")),
    (pa.types.is_struct, _plain_struct),
    (pa.types.is_map, lambda kind: pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))),
    (pa.types.is_fixed_size_list, lambda kind: pa.list_(plain_type(kind.value_type), kind.list_size)),
    (pa.types.is_large_list, lambda kind: pa.large_list(plain_type(kind.value_type))),
    (pa.types.is_list, lambda kind: pa.list_(plain_type(kind.value_type))),
)


def python_values(column: pa.Array, faults: dict[int, str]) -> list[Any]:
    """A column as Python values. A value that Python cannot hold (the year 12000) is None and noted in `faults`."""
    column = plain(column)
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError, pa.ArrowException):
        values = [_one(column, index, faults) for index in range(len(column))]
    return values


def plain(column: pa.Array) -> pa.Array:
    """The column in its plain type."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = plain_type(column.type)
    return column if kind == column.type else pc.cast(column, kind, safe=False)


def _one(column: pa.Array, index: int, faults: dict[int, str]) -> Any:
    try:
        return column[index].as_py(maps_as_pydicts="lossy")
    except (ValueError, OverflowError, pa.ArrowException) as error:
        faults[index] = str(error)
        return None


def text_values(column: pa.Array, faults: dict[int, str]) -> list[str]:
    """A column as the texts that `{{ column }}` shows."""
    if is_text(column.type):
        try:
            filled: list[str] = (pc.fill_null(column, "") if column.null_count else column).to_pylist()
        except UnicodeDecodeError:
            return [_one(column, index, faults) or "" for index in range(len(column))]
        return filled
    if pa.types.is_integer(column.type):
        return text_values(column.cast(pa.string()), faults)
    return [text_of(value) for value in python_values(column, faults)]


def bad_text(column: pa.Array) -> list[int]:
    """Places of the values that are not valid UTF-8 (also inside lists and structs). Almost always none, at 1 GB/s."""
    if not _holds_text(column.type):
        return []
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return [index for index in range(len(column)) if not _valid(column, index)]
    return []


def _valid(column: pa.Array, index: int) -> bool:
    try:
        # `take` copies the one value, so that its neighbours' bytes are not looked at.
        column.take(pa.array([index])).validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return False
    return True


def _holds_text(kind: pa.DataType) -> bool:
    if is_text(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _holds_text(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    return any(_holds_text(kind.field(index).type) for index in range(kind.num_fields))
