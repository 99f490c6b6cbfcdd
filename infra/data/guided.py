"""Can an output schema be used at all: is it JSON, is it a schema, can guided decoding keep to it?

The list of what guided decoding cannot do follows vLLM 0.32 (`has_xgrammar_unsupported_json_features`): features that
its grammar compiler would take and then not enforce. The engine's own check at its start has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jsonschema_rs
import orjson

from infra.data.schema_bounds import check_bounds
from infra.data.typed import MAX_SHAPES, TooWide, typed_shapes
from jobs.errors import BadSchema

_FORMATS = frozenset({
    "email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "uri-reference",
    "uri-template", "json-pointer", "relative-json-pointer",
})  # fmt: skip
_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_VALUES = frozenset({"enum", "const", "default", "examples", "example"})
_DRAFTS = ("http://json-schema.org/draft-", "https://json-schema.org/draft/", "https://json-schema.org/draft-")
MAX_DEPTH = 64

Schema = dict[str, Any]
Pointer = tuple[str, ...]


def check_output_schema(text: str) -> Schema:
    """The parsed schema. Raises BadSchema with the JSON pointer of what is wrong."""
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadSchema(reason=f"it is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise BadSchema(reason="it must be a JSON object")
    check_bounds(text, schema)
    check_is_schema(schema)
    for pointer, part in _parts(schema, ()):
        for asked, why in _RULES:
            if asked(part):
                raise BadSchema(reason=f"at {show(pointer)}: {why}")
    try:
        validator(schema)
        typed_shapes(schema)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise BadSchema(reason=str(error).split("\n", maxsplit=1)[0]) from error
    except TooWide as error:
        raise BadSchema(reason=f"its references unfold into more than {MAX_SHAPES} columns") from error
    return schema


def validator(schema: Schema) -> jsonschema_rs.Validator:
    """Checks outputs; never fetches anything."""
    return jsonschema_rs.validator_for(schema, retriever=_refuse)


def _refuse(uri: str) -> Any:
    msg = f"the schema refers to {uri}, which lies outside it"
    raise ValueError(msg)


def show(pointer: Sequence[str | int]) -> str:
    """A JSON pointer as text (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in pointer) or "the top"


def check_is_schema(schema: Schema) -> None:
    """Raises BadSchema with the JSON pointer of what is wrong."""
    draft = schema.get("$schema")
    if draft is not None and not (isinstance(draft, str) and draft.startswith(_DRAFTS)):
        raise BadSchema(reason=f"at /$schema: {draft!r} is no draft of JSON Schema that is known here")
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        raise BadSchema(reason=f"at {show(error.instance_path)}: {error.message}") from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise BadSchema(reason=str(error)) from error


def _parts(schema: Any, pointer: Pointer) -> Iterator[tuple[Pointer, Schema]]:
    """Every schema inside a schema, itself first; not the values that it merely quotes."""
    if len(pointer) > 2 * MAX_DEPTH:
        raise BadSchema(reason=f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(schema, list):
        for number, entry in enumerate(schema):
            yield from _parts(entry, (*pointer, str(number)))
    if not isinstance(schema, dict):
        return
    yield pointer, schema
    for word, inner in schema.items():
        if word in _MAPS and isinstance(inner, dict):
            for name, entry in inner.items():
                yield from _parts(entry, (*pointer, word, name))
        elif word not in _VALUES and isinstance(inner, dict | list):
            yield from _parts(inner, (*pointer, word))


def _types(part: Schema) -> frozenset[str]:
    found = part.get("type")
    several = found if isinstance(found, list) else [found]  # anything may stand where no schema is looked for
    return frozenset(kind for kind in several if isinstance(kind, str))


def _bounded_pattern(part: Schema) -> bool:
    return ("pattern" in part or "format" in part) and ("minLength" in part or "maxLength" in part)


def _is(kind: str, asked: Callable[[Schema], bool]) -> Callable[[Schema], bool]:
    return lambda part: kind in _types(part) and asked(part)


def _outside(part: Schema) -> bool:
    return isinstance(part.get("$ref"), str) and not part["$ref"].startswith("#")


def _names_bounded(part: Schema) -> bool:
    names = part.get("propertyNames")
    return isinstance(names, dict) and _bounded_pattern(names)


def _names_with_others(part: Schema) -> bool:
    return "propertyNames" in part and (
        "patternProperties" in part or "properties" in part or part.get("unevaluatedProperties", True) is not True
    )


def _patterns(part: Schema) -> bool:
    patterns = part.get("patternProperties")
    return isinstance(patterns, dict) and ("properties" in part or len(patterns) > 1)


_NOT = "guided decoding cannot keep to"
_RULES: tuple[tuple[Callable[[Schema], bool], str], ...] = (
    (_outside, "$ref points outside the schema; put what it names under $defs"),
    (lambda part: bool(_types(part) & {"integer", "number"}) and "multipleOf" in part, f"{_NOT} multipleOf"),
    (
        _is("array", lambda part: bool({"uniqueItems", "contains", "minContains", "maxContains"} & part.keys())),
        f"{_NOT} uniqueItems, contains, minContains or maxContains",
    ),
    (_is("string", lambda part: "format" in part and str(part["format"]) not in _FORMATS), f"{_NOT} this format"),
    (_is("string", _bounded_pattern), f"{_NOT} a pattern or format together with minLength or maxLength"),
    (_is("object", _names_bounded), f"{_NOT} propertyNames with a pattern and a length"),
    (
        _is("object", _names_with_others),
        f"{_NOT} propertyNames together with properties, patternProperties or unevaluatedProperties",
    ),
    (_is("object", _patterns), f"{_NOT} patternProperties together with properties, or more than one of them"),
    (
        lambda part: isinstance(part.get("allOf"), list) and len(part["allOf"]) > 1,
        f"{_NOT} allOf with several branches",
    ),
)
