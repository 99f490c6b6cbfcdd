"""The result's columns, typed outputs, and output schemas that cannot be used."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from infra.data.guided import check_output_schema
from infra.data.schema import dump_schema, fingerprint, kept_columns, load_schema, output_schema, typed_columns
from infra.data.typed import typed_shapes
from jobs.errors import BadInput, BadSchema

pytestmark = pytest.mark.unit

PLACE = ["row", "input_row", "custom_id"]
FATE = [
    "outcome",
    "error_code",
    "error_message",
    "finish_reason",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "amount_pico",
    "request_hash",
]


def test_the_columns_stand_in_their_order():
    inputs = pa.schema([("Name", pa.large_string()), ("Year", pa.timestamp("ns", "UTC"))])
    kept = kept_columns(inputs, {"lang": ("de",)}, None)
    found = output_schema(inputs, kept=kept, schema_text='{"type":"object","properties":{"score":{"type":"integer"}}}')
    assert found.names == [*PLACE, "Name", "Year", "lang", "output", "score", *FATE]
    assert found.field("Name").type == pa.large_string()
    assert found.field("Year").type == pa.timestamp("ns", "UTC")
    assert found.field("lang").type == pa.string()


def test_input_columns_with_a_result_columns_name_are_kept_under_another():
    inputs = pa.schema([(name, pa.int64()) for name in ("row", "input_row", "Output", "x", "input_Output")])
    assert kept_columns(inputs, {}, None) == (
        ("row", "input_row_"),
        ("input_row", "input_input_row"),
        ("Output", "input_Output_"),
        ("x", "x"),
        ("input_Output", "input_Output"),
    )


def test_no_two_result_columns_have_one_name_whatever_the_input_calls_its_own():
    names = [*dict.fromkeys([*PLACE, *FATE, "output", *(f"input_{n}" for n in FATE), "input_row_", "ROW"])]
    kept = kept_columns(pa.schema([(name, pa.int64()) for name in names]), {}, None)
    schema = orjson.dumps({"type": "object", "properties": {n: {"type": "string"} for n in [*names, "", "output_row"]}})
    found = output_schema(pa.schema([(n, pa.int64()) for n in names]), kept=kept, schema_text=schema.decode())
    lower = [name.lower() for name in found.names]
    assert len(set(lower)) == len(lower)
    assert len(kept) == len(names)


def test_keep_chooses_columns_in_the_inputs_order():
    inputs = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
    assert kept_columns(inputs, {}, ["c", "a"]) == (("a", "a"), ("c", "c"))
    assert kept_columns(inputs, {}, []) == ()
    with pytest.raises(BadInput, match="did you mean 'b'"):
        kept_columns(inputs, {}, ["bb"])


def test_a_varied_value_may_not_hide_a_column():
    with pytest.raises(BadInput, match="--vary a"):
        kept_columns(pa.schema([("a", pa.int64())]), {"a": ("1",)}, None)


def test_embeddings_are_a_fixed_size_list():
    found = output_schema(pa.schema([("a", pa.int64())]), kept=(), embedding_size=384)
    assert found.field("output").type == pa.list_(pa.field("element", pa.float32()), 384)


def test_a_schema_survives_being_written_down():
    found = output_schema(pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))]), kept=(("a", "a"),))
    assert load_schema(dump_schema(found)).equals(found, check_metadata=True)
    assert fingerprint(found) == fingerprint(load_schema(dump_schema(found)))


# ---- typed columns ------------------------------------------------------------------------------


def shape(schema, **root):
    return typed_shapes({"type": "object", "properties": {"x": schema}, **root})["x"]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, pa.string()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": ["integer", "null"]}, pa.int64()),
        ({"type": ["integer", "number"]}, pa.float64()),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, pa.int64()),
        ({"allOf": [{"type": "integer"}]}, pa.int64()),
        ({"enum": ["a", "b", None]}, pa.string()),
        ({"enum": [1, 2]}, pa.int64()),
        ({"enum": [1, 2.5]}, pa.float64()),
        ({"enum": [1, "a"]}, pa.string()),
        ({"const": True}, pa.bool_()),
        ({"type": "array", "items": {"type": "string"}}, pa.list_(pa.string())),
        ({"type": "array"}, pa.string()),
        ({"type": "object"}, pa.string()),
        ({"type": ["string", "integer"]}, pa.string()),
        ({}, pa.string()),
        (True, pa.string()),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, pa.struct([("a", pa.int64())])),
        ({"$ref": "#/$defs/n"}, pa.int64()),
        ({"$ref": "#/$defs/tree"}, pa.struct([("value", pa.int64()), ("children", pa.list_(pa.string()))])),
    ],
)
def test_every_schema_has_a_type(schema, kind):
    tree = {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}
    defs = {"n": {"type": "integer"}, "tree": {"type": "object", "properties": tree}}
    assert shape(schema, **{"$defs": defs}).kind == kind


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, 3.0, 3),
        ({"type": "integer"}, 2**80, None),
        ({"type": "integer"}, "3", None),
        ({"type": "number"}, 3, 3.0),
        ({"type": "string"}, None, None),
        ({"type": "object"}, {"a": [1]}, '{"a":[1]}'),
        ({"type": ["string", "integer"]}, 5, "5"),
        ({"type": "array", "items": {"type": "integer"}}, [1, None], [1, None]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1, "b": 2}, {"a": 1}),
    ],
)
def test_values_are_made_to_fit(schema, value, expected):
    found = shape(schema)
    assert pa.array([found.fit(value)], found.kind).to_pylist() == [expected]


def test_an_output_that_is_no_object_has_no_typed_columns():
    assert typed_shapes({"type": "array", "items": {"type": "string"}}) == {}


def test_a_pydantic_schema_is_read_through_its_reference():
    schema = {"$ref": "#/$defs/Car", "$defs": {"Car": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    assert list(typed_shapes(schema)) == ["a"]


def test_properties_whose_names_are_taken_are_renamed():
    text = '{"type":"object","properties":{"row":{"type":"string"},"a":{"type":"string"},"A":{"type":"string"}}}'
    assert [c.column for c in typed_columns(text, (("a", "a"),))] == ["output_row", "output_a", "output_A_"]


# ---- refused schemas ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "it is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"type":"strin"}', "at /type: "),
        ('{"properties":{"a/b":{"type":"objet"}}}', "at /properties/a~1b/type: "),
        ('{"$schema":"https://example.org/s"}', "at /$schema"),
        ('{"$ref":"https://example.org/s"}', "at the top: $ref points outside"),
        ('{"$ref":"#/$defs/none"}', "does not exist"),
        ('{"properties":{"n":{"type":"integer","multipleOf":2}}}', "at /properties/n: guided decoding"),
        ('{"type":"array","uniqueItems":true}', "uniqueItems"),
        ('{"type":"array","contains":{}}', "contains"),
        ('{"type":"string","format":"iri"}', "this format"),
        ('{"type":"string","pattern":"a","maxLength":3}', "a pattern or format together"),
        ('{"type":"object","propertyNames":{"pattern":"a","maxLength":3}}', "propertyNames"),
        ('{"type":"object","propertyNames":{"pattern":"a"},"properties":{}}', "propertyNames together"),
        ('{"type":"object","patternProperties":{"a":{},"b":{}}}', "patternProperties"),
        ('{"allOf":[{"type":"string"},{"enum":["a"]}]}', "allOf"),
        ('{"anyOf":[{"type":"array","minContains":1}]}', "at /anyOf/0: "),
    ],
)
def test_schemas_that_cannot_be_used_are_refused_with_their_place(text, expected):
    with pytest.raises(BadSchema) as caught:
        check_output_schema(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"multipleOf": {"type": "integer"}, "contains": {"type": "array"}}},
        {"type": "string", "enum": ["a"], "default": {"type": "integer", "multipleOf": 2}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer", "minimum": 0},
        {"type": "string", "format": "date"},
        {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 3},
    ],
)
def test_usable_schemas_pass(schema):
    assert check_output_schema(orjson.dumps(schema).decode()) == schema


def test_a_schema_nested_without_end_is_refused():
    text = '{"properties":{"a":' * 300 + "{}" + "}}" * 300
    with pytest.raises(BadSchema):
        check_output_schema(text)
