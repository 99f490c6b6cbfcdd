"""The engine port: one body over the fake engine and vLLM on a small real model, each in its own process."""

import json
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.errors import BadSchema
from tests.support.engines import (
    LONG,
    PATIENCE_S,
    a_profile,
    chat,
    collect,
    requests_of,
    run_rows,
)

CONTEXT = 4096
LONG_TEXT = "The river runs past the old stone bridge and the market of the small town by the sea. " * 12
COLOUR = json.dumps(
    {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green", "blue"]}, "warm": {"type": "boolean"}},
        "required": ["colour", "warm"],
        "additionalProperties": False,
    }
)

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True)
def left_empty(request):
    yield
    if "engine" in request.fixturenames:
        assert request.getfixturevalue("engine").in_flight() == 0


@pytest.fixture
def real_engine(engine):
    if engine.spec.backend == "fake":
        pytest.skip("the fake engine has no cache")
    return engine


def test_it_says_what_it_is(engine):
    info = engine.start()  # started already: it only tells
    assert (info.engine, info.kind, info.max_model_len) == (engine.spec.backend, "chat", CONTEXT)
    assert info.max_num_seqs == 32
    assert info.block_size > 0
    assert info.start_s > 0


def test_every_row_of_several_chunks_comes_back_once(engine):
    one, two = a_profile(), a_profile(sampling='{"temperature":0,"max_tokens":2}')
    chunks = [requests_of([chat(f"row {n} of {size}") for n in range(size)]) for size in (1, 40, 3)]
    for profile, chunk in zip((one, two, one), chunks, strict=True):
        engine.submit(profile, chunk)
    assert engine.in_flight() == 44
    results = collect(engine, 44)
    assert [r.id for r in results] == [request.id for chunk in chunks for request in chunk]
    assert {r.finish_reason for r in results} == {"length"}
    assert all(0 <= r.cached_tokens < r.input_tokens for r in results)
    assert [r.output_tokens for r in results] == [8] + [2] * 40 + [8] * 3
    assert engine.poll(0.0) == []


def test_text_is_the_same_at_temperature_0(engine):
    prompts = [chat("Name a fruit."), chat("Name a river.")]
    first, second = run_rows(engine, prompts), run_rows(engine, prompts)
    assert [r.text for r in first] == [r.text for r in second]
    assert all(r.text for r in first)


def test_a_prefix_that_was_seen_is_cached_in_whole_blocks(engine):
    prompts = [chat("One?", LONG_TEXT), chat("Two?", LONG_TEXT)]
    run_rows(engine, prompts)
    block = engine.start().block_size
    for result in run_rows(engine, prompts):
        assert result.input_tokens > result.cached_tokens > 0
        assert result.cached_tokens % block == 0


def test_another_cache_salt_shares_nothing(real_engine):
    prompts = [chat("Three?", f"Salted. {LONG_TEXT}")]
    mine, theirs = a_profile(cache_salt="mine"), a_profile(cache_salt="theirs")
    first, again, other = (run_rows(real_engine, prompts, p)[0].cached_tokens for p in (mine, mine, theirs))
    assert (first, other) == (0, 0)
    assert again > 0


def test_a_plain_text_needs_no_chat_template(engine):
    (result,) = run_rows(engine, ["Once upon a time"], a_profile("completion"))
    assert (result.finish_reason, result.output_tokens) == ("length", 8)
    assert result.input_tokens < 8


def test_an_output_ends_where_the_context_ends(engine):
    profile = a_profile(sampling='{"temperature":0,"max_tokens":100000,"ignore_eos":true}')
    (result,) = run_rows(engine, [chat("Go on.", LONG_TEXT)], profile)
    assert result.input_tokens + result.output_tokens <= CONTEXT
    if engine.spec.backend != "fake":  # the fake engine's texts are short
        assert (result.finish_reason, result.input_tokens + result.output_tokens) == ("length", CONTEXT)


def test_a_prompt_longer_than_the_context_is_an_error_row_with_the_counts(engine):
    good, bad, also_good = run_rows(engine, [chat("a"), chat("tree " * 9000), chat("b")])
    assert (good.finish_reason, also_good.finish_reason) == ("length", "length")
    assert (bad.finish_reason, bad.error_code) == ("error", "context_length_exceeded")
    assert bad.input_tokens == 0  # nothing was computed, so nothing is charged
    assert re.search(r"the prompt has (9|1\d)\d\d\d tokens; .* more than the 4096 tokens", bad.error_message)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ('{"temperature":-1}', "temperature must be at least 0 and at most 2, not -1"),
        ('{"tempratur":1}', "unknown sampling parameter tempratur; did you mean temperature?"),
        ('{"stop":[""]}', "stop must be a text or a list of texts, none empty, not ['']"),
        ('{"n":129}', "n must be at least 1 and at most 128, not 129"),
    ],
)
def test_an_invalid_parameter_is_named_in_every_row_that_has_it(engine, sampling, words):
    results = run_rows(engine, [chat("x"), chat("y")], a_profile(sampling=sampling))
    assert [(r.finish_reason, r.error_code, r.error_message) for r in results] == [
        ("error", "invalid_request", words)
    ] * 2


def test_a_prompt_that_is_no_unicode_is_an_error_row_and_its_neighbours_run(engine):
    good, bad = run_rows(engine, [chat("fine"), chat("half a pair: \ud83d")])
    assert good.finish_reason == "length"
    assert (bad.error_code, bad.error_message) == ("invalid_request", "the prompt is not valid Unicode text")


def test_a_schema_guides_the_output(engine):
    profile = a_profile(sampling='{"temperature":0,"max_tokens":60}', schema=COLOUR)
    for result in run_rows(engine, [chat(f"Colour {n}?") for n in range(4)], profile):
        assert result.finish_reason == "stop"
        answer = json.loads(result.text)
        assert answer["colour"] in {"red", "green", "blue"}
        assert isinstance(answer["warm"], bool)


def test_a_guided_output_that_is_cut_says_so(engine):
    profile = a_profile(sampling='{"temperature":0,"max_tokens":3}', schema=COLOUR)
    (result,) = run_rows(engine, [chat("Colour?")], profile)
    assert result.finish_reason == "length"


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '{"type":"objekt"}',
        '{"type":"array","items":{"type":"integer"},"uniqueItems":true}',
        '{"$ref":"#/$defs/nowhere"}',
    ],
    ids=["not JSON", "no such type", "not supported", "dangling"],
)
def test_a_schema_that_cannot_guide_is_refused(engine, schema):
    engine.check_schema(COLOUR)
    with pytest.raises(BadSchema):
        engine.check_schema(schema)


def test_a_schema_may_be_asked_about_by_another_thread_while_rows_run(engine):
    with ThreadPoolExecutor(1) as other:
        asked = [other.submit(engine.ask_schema, schema).result() for schema in (COLOUR, '{"type":"objekt"}')]
        assert len(run_rows(engine, [chat("Colour?")] * 3)) == 3
        while not all(answer.done() for answer in asked):
            engine.poll(0.1)
    good, bad = [answer.result() for answer in asked]
    assert (good, isinstance(bad, str)) == (None, True)


def test_the_place_of_what_is_not_supported_is_named(engine):
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}, "required": ["tags"]}
    with pytest.raises(BadSchema, match=r"tags.*uniqueItems"):
        engine.check_schema(json.dumps(schema))


def test_an_aborted_row_comes_back_once(slow):
    requests = requests_of([chat(f"Count, {n}") for n in range(60)])
    slow.submit(a_profile(sampling=f"{{{LONG}}}"), requests)
    slow.abort([request.id for request in requests[::2]] + [10**9])
    slow.abort([request.id for request in requests[1::2]])
    results = collect(slow, 60)
    assert [(r.id, r.finish_reason) for r in results] == [(request.id, "abort") for request in requests]


def test_tokens_move_while_a_long_row_runs(engine):
    profile = a_profile(sampling='{"temperature":0,"max_tokens":480,"ignore_eos":true}')
    before = engine.tokens_moved()
    engine.submit(profile, requests_of([chat("Tell me all of it.")]))
    collect(engine, 1)
    assert engine.tokens_moved() > before


def test_what_is_inside_is_told_about_every_second(engine):
    """At rest nothing is; a share of the cache is told only by an engine that has one."""
    profile, told = a_profile(sampling='{"temperature":0,"max_tokens":50,"ignore_eos":true}'), []
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and not engine.occupancy().running:
        if not engine.in_flight():
            engine.submit(profile, requests_of([chat(f"Tell me all of number {n}.") for n in range(40)]))
        engine.poll(0.02)
    told.append(engine.occupancy())
    while time.monotonic() < until and (engine.in_flight() or engine.occupancy().running):
        engine.poll(0.2)
    told.append(engine.occupancy())
    assert told[0].running in range(1, 33)
    assert (told[1].running, told[1].waiting) == (0, 0)
    assert [occupancy.kv_use is None for occupancy in told] == [engine.spec.backend == "fake"] * 2


# ---- embeddings ----------------------------------------------------------------------------------


def test_a_vector_has_length_1_and_is_the_same_for_the_same_text(embedder):
    assert embedder.start().embedding_size == 384
    one, two, three = run_rows(embedder, ["A cat sat on the mat.", "A cat sat on the mat.", "Interest rates rose."])
    assert {r.finish_reason for r in (one, two, three)} == {"stop"}
    assert len(one.embedding) == 384
    assert math.isclose(math.fsum(x * x for x in one.embedding), 1.0, abs_tol=1e-3)
    assert all(abs(a - b) < 1e-3 for a, b in zip(one.embedding, two.embedding, strict=True))
    assert sum(a * b for a, b in zip(one.embedding, three.embedding, strict=True)) < 0.9
    assert (one.input_tokens, one.output_tokens, one.text) == (two.input_tokens, 0, "")


def test_a_text_too_long_to_embed_is_an_error_row(embedder):
    good, bad = run_rows(embedder, ["short", "long " * 400])
    assert good.finish_reason == "stop"
    assert (bad.error_code, bad.embedding) == ("context_length_exceeded", None)
