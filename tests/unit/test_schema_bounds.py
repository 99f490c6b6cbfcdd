"""A schema that would take a grammar compiler or a validator too long is refused before anyone tries."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from infra.data.guided import check_output_schema
from infra.data.schema_bounds import MAX_BYTES
from jobs.errors import BadSchema

pytestmark = pytest.mark.unit


def properties(count, required=()):
    return {
        "type": "object",
        "properties": {f"p{n}": {"type": "integer"} for n in range(count)},
        "required": list(required),
    }


def chain(word, size):
    """Each definition names the next one twice."""
    definitions = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(size)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{size}": {"type": "integer"}}}


def fan(size):
    """Each definition has two properties of the next one."""
    definitions = {
        f"d{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(size)
    }
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/d0"}},
        "$defs": {**definitions, f"d{size}": {"type": "integer"}},
    }


NESTED = reduce(lambda inner, _: {"type": "array", "items": inner}, range(70), {"type": "integer"})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": ["x" * MAX_BYTES]}, "characters, more than 131072"),
        (NESTED, "it is nested more than 64 deep"),
        ({"enum": [NESTED]}, "it is nested more than 64 deep"),
        (properties(2001, [f"p{n}" for n in range(2001)]), "it has 2001 properties, more than 2000"),
        (properties(301), "an object has 301 properties that are not required; 300 may be"),
        ({"enum": list(range(5001))}, "it has 5001 enum values, more than 5000"),
        ({"type": "string", "pattern": "a" * 1001}, "a pattern has 1001 characters, more than 1000"),
        ({"type": "string", "pattern": "^(a{200}b){200}$"}, "the repetitions of a pattern come to 40000 together"),
        ({"type": "object", "patternProperties": {"x{20000}": {}}}, "the repetitions of a pattern come to 20000"),
        ({"type": "array", "minItems": 10**9}, "minItems is 1000000000, more than 1000000"),
        ({"$ref": "#"}, "# refers to itself without end"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "# refers to itself without end"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}, "#/$defs/a refers to itself"),
        (chain("oneOf", 40), "its references unfold into more than 100000 parts"),
        (chain("anyOf", 40), "its references unfold into more than 100000 parts"),
        (fan(30), "its references unfold into more than 10000 columns"),
        ({"$dynamicRef": "#a"}, "$dynamicRef cannot be used"),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, "$ref #a is no JSON pointer"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_too_much_is_refused_by_name(schema, words):
    with pytest.raises(BadSchema, match=r".") as caught:
        check_output_schema(json.dumps(schema))
    assert words in caught.value.data["reason"]


@pytest.mark.parametrize(
    "schema",
    [
        properties(300),
        properties(2000, [f"p{n}" for n in range(2000)]),
        {"type": "string", "pattern": "^[A-Z]{2}-\\d{4,6}$"},
        {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
        chain("anyOf", 8),
        fan(8),
    ],
    ids=["optional", "required", "pattern", "a list by reference", "a few references", "a few columns"],
)
def test_what_people_write_is_taken(schema):
    assert check_output_schema(json.dumps(schema)) == schema


def test_text_that_nests_without_end_is_refused():
    with pytest.raises(BadSchema):
        check_output_schema("[" * 100_000)
