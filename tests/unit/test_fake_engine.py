"""The fake engine's clockwork and what it answers, without a process and without waiting."""

import itertools
import json
from dataclasses import replace

import jsonschema_rs
import pytest

from infra.engines.backend import SchemaRefused
from infra.engines.fake_answers import flavour_of
from infra.engines.fake_args import FakeArgs
from infra.engines.fake_core import FakeCore
from infra.engines.fake_schema import instance, parse_schema
from jobs.ports.engine import EngineRequest, RequestProfile

pytestmark = pytest.mark.unit
_keys = itertools.count()


def a_core(**args) -> FakeCore:
    return FakeCore(FakeArgs(**args))


def add(core: FakeCore, *prompts: str, **profile) -> None:
    flavour = flavour_of(RequestProfile(key=str(next(_keys)), **{"kind": "completion", **profile}))
    core.add(flavour, [EngineRequest(number, prompt) for number, prompt in enumerate(prompts)])


def ids(results) -> list[int]:
    return [result.id for result in results]


def test_without_limits_all_is_done_at_once():
    core = a_core()
    add(core, "a", "b", "c")
    assert ids(core.advance(0.0)) == [0, 1, 2]
    assert core.next_at() is None


def test_rows_per_second_hold():
    core = a_core(rows_per_s=2)
    add(core, "a", "b", "c")
    assert [ids(core.advance(now)) for now in (0.0, 0.5, 0.9, 1.0, 1.5)] == [[], [0], [], [1], [2]]


def test_no_more_rows_run_than_there_are_seats():
    core = a_core(max_num_seqs=2, row_latency_s=1.0)
    add(core, "a", "b", "c")
    assert [ids(core.advance(now)) for now in (0.0, 1.0, 1.5, 2.0)] == [[], [0, 1], [], [2]]


def test_the_more_urgent_waits_less():
    core = a_core(max_num_seqs=1, row_latency_s=1.0)
    core.add(flavour_of(RequestProfile(key="late", kind="completion", priority=5)), [EngineRequest(1, "x")])
    core.add(flavour_of(RequestProfile(key="soon", kind="completion", priority=0)), [EngineRequest(2, "x")])
    core.advance(0.0)
    assert ids(core.advance(1.0)) == [2]


def test_tokens_move_while_a_row_runs_but_not_while_it_hangs():
    core = a_core(row_latency_s=60.0, hang_on="stuck")
    add(core, "slow")
    core.advance(0.0)
    moved = core.moved
    core.advance(1.0)
    assert core.moved > moved
    add(core, "stuck")
    core.advance(2.0)
    moved = core.moved
    assert core.hung
    assert core.advance(100.0) == []
    assert core.moved == moved


def test_an_aborted_row_comes_back_once_whether_it_waits_or_runs():
    core = a_core(max_num_seqs=1, row_latency_s=1.0)
    add(core, "runs", "waits", "stays")
    core.advance(0.0)
    core.abort([0, 1, 99])
    assert {(r.id, r.finish_reason) for r in core.advance(0.5)} == {(0, "abort"), (1, "abort")}
    assert [(r.id, r.finish_reason) for r in core.advance(2.0)] == [(2, "stop")]


def told(core: FakeCore) -> list[tuple[int, int, str]]:
    return [(piece.id, piece.choice, piece.text) for piece in core.take_pieces()]


def test_a_row_is_told_of_token_by_token_in_its_own_time():
    core = a_core(row_latency_s=1.0, token_latency_s=0.5)
    add(core, "a", sampling='{"max_tokens":3}', stream=True)
    steps = [(core.advance(now), told(core), core.next_at()) for now in (0.0, 1.5, 2.0, 2.5)]
    (result,) = steps[-1][0]
    text = result.text
    assert steps == [
        ([], [], 1.5),
        ([], [(0, 0, text[:4])], 2.0),
        ([], [(0, 0, text[4:8])], 2.5),
        ([result], [(0, 0, text[8:])], None),
    ]


def test_an_aborted_row_has_what_was_generated_of_it_whether_it_is_told_of_or_not():
    core = a_core(token_latency_s=0.5)
    for number, stream in enumerate((True, False)):
        flavour = flavour_of(RequestProfile(key=str(number), kind="completion", stream=stream))
        core.add(flavour, [EngineRequest(number, "a")])
    core.advance(0.0)
    core.abort([0, 1])
    loud, silent = core.advance(1.2)
    assert (loud.finish_reason, loud.input_tokens, loud.output_tokens, len(loud.text)) == ("abort", 1, 2, 8)
    assert silent == replace(loud, id=1)
    assert told(core) == [(0, 0, loud.text[:4]), (0, 0, loud.text[4:])]


def test_the_answer_depends_on_prompt_and_parameters_alone():
    core = a_core()
    add(core, "a", "a", "b")
    add(core, "a", sampling='{"seed":1}')
    first, again, other, reseeded = [result.text for result in core.advance(0.0)]
    assert first == again
    assert len({first, other, reseeded}) == 3


def test_faults_act_on_the_row_that_asks_for_them():
    core = a_core(error_on="bad", length_on="long", die_after_rows=3)
    add(core, "bad", "long", "fine")
    results = core.advance(0.0)
    assert [(r.finish_reason, r.error_code) for r in results] == [
        ("error", "engine_error"),
        ("length", None),
        ("stop", None),
    ]
    assert core.dead


SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "string", "minLength": 20}, "b": {"type": "integer"}}},
    {"type": "integer", "minimum": -5, "maximum": -1},
    {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
    {"type": "number", "maximum": -100},
    {"type": "integer", "minimum": 10, "multipleOf": 7},
    {"type": "array", "items": {"enum": [1, "x"]}, "minItems": 3},
    {"$ref": "#/$defs/p", "$defs": {"p": {"type": ["string", "null"], "maxLength": 3}}},
    {"anyOf": [{"type": "null"}, {"type": "string"}]},
    {"allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {"type": "boolean"}}}]},
    {"type": "string", "format": "date"},
    {"properties": {"x": {"type": "number"}}, "required": ["x", "y"]},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_a_guided_answer_is_valid(schema):
    parse_schema(json.dumps(schema))
    validator = jsonschema_rs.validator_for(schema)
    for seed in range(20):
        validator.validate(instance(schema, seed))


NODE = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}
ENDLESS = {"$ref": "#/$defs/n", "$defs": {"n": {**NODE, "required": ["n"]}}}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "it is not JSON"),
        ('{"type":"objekt"}', r"\$ has the type 'objekt'"),
        ('{"properties":{"a":{"type":"string","pattern":"x"}}}', r"\$\.a uses pattern"),
        ('{"$ref":"https://example.org/s"}', "outside the schema"),
        ('{"enum":[]}', r"\$\.enum is not a list of values"),
        (json.dumps(ENDLESS), "has no finite instance"),
    ],
)
def test_what_no_instance_can_be_made_for_is_refused(schema, words):
    with pytest.raises(SchemaRefused, match=words):
        parse_schema(schema)
