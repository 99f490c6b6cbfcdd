"""Typed columns from a JSON Schema: an Arrow type for each property, and what makes a parsed value fit it.

string, integer, number, boolean, array and object have their Arrow twins, also inside each other and with null; an
enum has the type of its values. Whatever else a schema may say (unions, recursion, objects without named properties)
becomes JSON text. The raw output stands beside it, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from infra.data.schema_bounds import target

Fit = Callable[[Any], Any]
MAX_SHAPES = 10_000
"""Columns inside columns, references followed."""
_INT64 = range(-(2**63), 2**63)


class Shape(NamedTuple):
    """An Arrow type, and a function that turns a parsed JSON value into one of it (None where it cannot be)."""

    kind: pa.DataType
    fit: Fit


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumn:
    """One top-level property of the output."""

    property: str
    column: str
    shape: Shape


def typed_shapes(schema: Mapping[str, Any]) -> dict[str, Shape]:
    """Property → shape, of an object at the top; empty if the output is something else."""
    reader = _Reader(schema)
    top = reader.resolve(schema, frozenset())
    if top is None or not _says_object(top[0]):
        return {}
    properties = top[0].get("properties", {})
    return {name: reader.shape(inner, top[1]) for name, inner in properties.items()}


def _says_object(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type", "object" if "properties" in schema else None)
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


Seen = frozenset[str]


class TooWide(Exception):
    """The schema unfolds into more than MAX_SHAPES."""


class _Reader:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_SHAPES

    def resolve(self, schema: Any, seen: Seen) -> tuple[Mapping[str, Any], Seen] | None:
        """Behind local references and wrappers of one branch; None for what has no single shape."""
        if not isinstance(schema, Mapping):
            return None
        if "$ref" in schema:
            ref = schema["$ref"]
            if ref in seen:
                return None
            return self.resolve(target(self._root, ref), seen | {ref})
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                branches = [b for b in schema[word] if not (isinstance(b, Mapping) and b.get("type") == "null")]
                return self.resolve(branches[0], seen) if len(branches) == 1 else None
        return schema, seen

    def shape(self, schema: Any, seen: Seen) -> Shape:
        self._left -= 1
        if self._left < 0:
            raise TooWide
        found = self.resolve(schema, seen)
        if found is None:
            return JSON_TEXT
        inner, seen = found
        if "enum" in inner or "const" in inner:
            return _of_values(inner.get("enum", [inner.get("const")]))
        match _one_type(inner):
            case "array" if isinstance(inner.get("items"), Mapping) and "prefixItems" not in inner:
                return _list(self.shape(inner["items"], seen))
            case "object" if inner.get("properties"):
                return _struct({name: self.shape(part, seen) for name, part in inner["properties"].items()})
            case str() as simple:
                return _SIMPLE.get(simple, JSON_TEXT)
        return JSON_TEXT


def _one_type(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type")
    if kind is None:
        return "object" if "properties" in schema else "array" if "items" in schema else None
    kinds = {kind} if isinstance(kind, str) else set(kind) - {"null"}
    if kinds == {"integer", "number"}:
        return "number"
    return kinds.pop() if len(kinds) == 1 else None


def _of_values(values: list[Any]) -> Shape:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str}:
        return _SIMPLE["string"]
    if kinds == {bool}:
        return _SIMPLE["boolean"]
    if kinds == {int}:
        return _SIMPLE["integer"]
    return _SIMPLE["number"] if kinds and kinds <= {int, float} else JSON_TEXT


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> Any:
    """JSON Schema counts 3.0 among the integers; one that 64 bits cannot hold stays in the raw output only."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value in _INT64 else None


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _bool(value: Any) -> Any:
    return value if isinstance(value, bool) else None


def _json(value: Any) -> Any:
    return None if value is None else orjson.dumps(value).decode()


def _list(item: Shape) -> Shape:
    fit = item.fit
    return Shape(pa.list_(item.kind), lambda value: [fit(v) for v in value] if isinstance(value, list) else None)


def _struct(fields: Mapping[str, Shape]) -> Shape:
    fits = [(name, shape.fit) for name, shape in fields.items()]

    def fit(value: Any) -> Any:
        return {name: one(value.get(name)) for name, one in fits} if isinstance(value, dict) else None

    return Shape(pa.struct([pa.field(name, shape.kind) for name, shape in fields.items()]), fit)


JSON_TEXT = Shape(pa.string(), _json)
_SIMPLE = {
    "string": Shape(pa.string(), _text),
    "integer": Shape(pa.int64(), _whole),
    "number": Shape(pa.float64(), _number),
    "boolean": Shape(pa.bool_(), _bool),
    "null": Shape(pa.string(), _json),
}
