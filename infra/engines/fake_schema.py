"""A small valid instance of a JSON Schema, for the fake engine's guided output."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import orjson

from infra.engines.backend import SchemaRefused

MAX_DEPTH = 32
DEEP = 6
"""From here on an object has only what it must: a schema may refer to itself."""
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_REFUSED = ("pattern", "not", "if", "dependentSchemas", "contains", "uniqueItems", "patternProperties", "propertyNames")


def parse_schema(text: str) -> Any:
    """The schema as JSON. Raises SchemaRefused when it is none, or when no instance can be made."""
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaRefused(f"it is not JSON: {error}") from None
    instance(schema, seed=0)
    return schema


def instance(schema: Any, seed: int) -> Any:
    """An instance, the same for the same seed. Raises SchemaRefused naming the place that cannot be done."""
    return _Maker(schema, random.Random(seed)).make(schema, "$", 0)


class _Maker:
    def __init__(self, root: Any, chance: random.Random) -> None:
        self._root = root
        self._chance = chance

    def make(self, schema: Any, place: str, depth: int) -> Any:
        if schema is True:
            return None
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            raise SchemaRefused(
                f"{place} has no finite instance" if depth > MAX_DEPTH else f"{place} is not a schema: {schema!r}"
            )
        for word in _REFUSED:
            if schema.get(word):
                raise SchemaRefused(f"{place} uses {word}, which the fake engine cannot follow")
        if "$ref" in schema:
            return self.make(self._resolve(schema["$ref"], place), place, depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._choose(schema["enum"], f"{place}.enum")
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.make(schema[word][0], f"{place}.{word}[0]", depth + 1)
        if "allOf" in schema:
            merged: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
            for part in schema["allOf"]:
                merged = _merge(merged, self._resolve(part["$ref"], place) if "$ref" in part else part)
            return self.make(merged, place, depth + 1)
        return self._typed(schema, place, depth)

    def _typed(self, schema: Mapping[str, Any], place: str, depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "null")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        match kind:
            case "object":
                properties = schema.get("properties", {})
                required = schema.get("required", ())
                names = [n for n in properties if depth < DEEP or n in required]
                names += [n for n in required if n not in properties]
                return {n: self.make(properties.get(n, True), f"{place}.{n}", depth + 1) for n in names}
            case "array":
                count = max(schema.get("minItems", 0), min(1, schema.get("maxItems", 1)))
                return [self.make(schema.get("items", True), f"{place}[]", depth + 1) for _ in range(count)]
            case "string":
                return self._string(schema, place)
            case "integer" | "number":
                return self._number(schema, kind)
            case "boolean":
                return self._chance.random() < 0.5
            case "null":
                return None
        raise SchemaRefused(f"{place} has the type {kind!r}; known are {', '.join(_TYPES)}")

    def _string(self, schema: Mapping[str, Any], place: str) -> str:
        formats = {
            "date": "2026-01-02", "date-time": "2026-01-02T03:04:05Z", "time": "03:04:05Z",
            "uuid": "01234567-89ab-4cde-8f01-23456789abcd", "email": "fake@example.org", "ipv4": "192.0.2.1",
        }  # fmt: skip
        if "format" in schema:
            if schema["format"] not in formats:
                raise SchemaRefused(f"{place} has the format {schema['format']!r}, which the fake engine cannot follow")
            return formats[schema["format"]]
        least = schema.get("minLength", 0)
        size = max(least, min(schema.get("maxLength", least + 8), least + 8))
        return "".join(self._chance.choices("abcdefghijklmnopqrstuvwxyz", k=size))

    def _number(self, schema: Mapping[str, Any], kind: str) -> float:
        step = schema.get("multipleOf", 1)
        low = schema.get("minimum", schema.get("exclusiveMinimum", -step) + step if "exclusiveMinimum" in schema else 0)
        high = schema.get("maximum")
        if high is None:
            high = schema["exclusiveMaximum"] - step if "exclusiveMaximum" in schema else low + 100 * step
            low = min(low, high) if "minimum" not in schema and "exclusiveMinimum" not in schema else low
        elif low > high and "minimum" not in schema:
            low = high
        first, last = -(-low // step), high // step
        if first > last:
            return float(low)
        value = self._chance.randint(int(first), int(last)) * step
        return int(value) if kind == "integer" else value

    def _resolve(self, ref: Any, place: str) -> Any:
        target = self._root
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise SchemaRefused(f"{place} refers to {ref!r}, which lies outside the schema")
        for part in ref.lstrip("#/").split("/") if ref.strip("#/") else ():
            if not isinstance(target, Mapping) or part not in target:
                raise SchemaRefused(f"{place} refers to {ref}, which is not there")
            target = target[part]
        return target

    def _choose(self, options: Any, place: str) -> Any:
        if not isinstance(options, list) or not options:
            raise SchemaRefused(f"{place} is not a list of values")
        return self._chance.choice(options)


def _merge(left: dict[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**left, **right}
    if "properties" in left and "properties" in right:
        merged["properties"] = {**left["properties"], **right["properties"]}
    if "required" in left and "required" in right:
        merged["required"] = [*left["required"], *right["required"]]
    return merged
