"""The engine port where a row has more to say than one text: answers, log probabilities, tools, inputs."""

import base64
import json
from array import array

import pytest

from jobs.ports.engine import Several
from tests.support.engines import LONG, a_profile, chat, collect, requests_of, run_rows

pytestmark = pytest.mark.contract
WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = json.dumps([{"type": "function", "function": {"name": "weather_of", "parameters": WEATHER}}])
A_CALL = {
    "type": "object",
    "properties": {"name": {"enum": ["weather_of"], "type": "string"}, "parameters": WEATHER},
    "required": ["name", "parameters"],
}
A_LIST = json.dumps({"type": "array", "items": A_CALL, "minItems": 1, "maxItems": 1})


@pytest.fixture(autouse=True)
def left_empty(request):
    yield
    if "engine" in request.fixturenames:
        assert request.getfixturevalue("engine").in_flight() == 0


def answers_of(result):
    return json.loads(result.answers)


def test_one_text_has_no_more_to_say(engine):
    (result,) = run_rows(engine, [chat("hello")])
    assert result.answers is None


def test_several_answers_share_the_tokens_of_one_prompt(engine):
    sampling = '{"max_tokens":8,"n":3,"temperature":1,"seed":5,"ignore_eos":true}'
    (one,) = run_rows(engine, [chat("Number?")], a_profile(sampling=sampling.replace('"n":3', '"n":1')))
    (three,) = run_rows(engine, [chat("Number?")], a_profile(sampling=sampling))
    (again,) = run_rows(engine, [chat("Number?")], a_profile(sampling=sampling))
    texts = [answer["text"] for answer in answers_of(three)]
    assert (three.text, len(set(texts)), three.input_tokens) == (texts[0], 3, one.input_tokens)
    assert three.output_tokens == 3 * one.output_tokens == 24
    assert [answer["text"] for answer in answers_of(again)] == texts
    assert {answer["finish_reason"] for answer in answers_of(three)} == {"length"}


@pytest.mark.parametrize("most", [0, 3])
def test_log_probabilities_belong_to_the_text(engine, most):
    sampling = f'{{"max_tokens":8,"temperature":0,"logprobs":{most}}}'
    (result,) = run_rows(engine, [chat("Say something.")], a_profile(sampling=sampling))
    (answer,) = answers_of(result)
    places = answer["tokens"]
    assert len(places) == result.output_tokens
    assert "".join(token for token, _, _ in places).strip() == answer["text"].strip()
    assert {len(others) for _, _, others in places} == {most}
    assert all(-9999.0 <= logprob <= 0 for _, logprob, _ in places)
    assert all(others[0][1] == max(logprob for _, logprob in others) for _, _, others in places if others)


def test_several_texts_and_token_ids_are_completed_one_by_one(engine):
    profile = a_profile("completion")
    (text,) = run_rows(engine, ["Once upon a time"], profile)
    (ids,) = run_rows(engine, [(5, 6, 7)], profile)
    (both,) = run_rows(engine, [Several(("Once upon a time", (5, 6, 7)))], profile)
    assert [answer["text"] for answer in answers_of(both)] == [text.text, ids.text]
    assert (ids.input_tokens, both.input_tokens) == (3, text.input_tokens + 3)
    assert both.output_tokens == text.output_tokens + ids.output_tokens


def test_one_of_several_texts_that_is_too_long_is_the_rows_error(engine):
    (bad,) = run_rows(engine, [Several(("fine", "tree " * 9000))], a_profile("completion"))
    assert (bad.error_code, bad.answers) == ("context_length_exceeded", None)
    assert bad.error_message.startswith("prompt[1]: ")


def test_a_token_that_the_model_has_not_is_that_rows_error(engine):
    if engine.spec.backend == "fake":
        pytest.skip("the fake engine has no vocabulary")
    good, bad = run_rows(engine, [(5, 6), (2**30,)], a_profile("completion"))
    assert (good.finish_reason, bad.finish_reason, bad.error_code) == ("length", "error", "invalid_request")


def test_an_aborted_row_with_several_answers_comes_back_once(slow):
    requests = requests_of([chat("Count.")])
    slow.submit(a_profile(sampling=f'{{{LONG},"n":3}}'), requests)
    slow.abort([requests[0].id])
    (result,) = collect(slow, 1)
    assert result.finish_reason == "abort"


@pytest.mark.parametrize(("choice", "schema"), [("required", A_LIST), ("weather_of", json.dumps(WEATHER))])
def test_a_tool_that_must_be_called_is_called_with_its_arguments(engine, choice, schema):
    sampling = '{"temperature":0,"max_tokens":120}'
    profile = a_profile(sampling=sampling, schema=schema, tools=TOOLS, tool_choice=choice)
    (result,) = run_rows(engine, [chat("How is it?")], profile)
    ((name, arguments),) = answers_of(result)[0]["calls"]
    assert (result.finish_reason, name) == ("stop", "weather_of")
    assert json.loads(arguments)["city"] in {"Rome", "Oslo"}


def test_the_model_is_told_of_its_tools(engine):
    (without,) = run_rows(engine, [chat("How is it?")])
    (told,) = run_rows(engine, [chat("How is it?")], a_profile(tools=TOOLS))
    assert told.input_tokens > without.input_tokens + 20
    assert [answer.get("calls") for answer in answers_of(told)] == [None]


def test_calls_and_their_results_are_shown_to_the_model(engine):
    call = {"id": "c1", "type": "function", "function": {"name": "weather_of", "arguments": '{"city":"Oslo"}'}}
    said = ("assistant", "", json.dumps({"tool_calls": [call]}))
    result = ("tool", "rain", json.dumps({"tool_call_id": "c1"}))
    (short,) = run_rows(engine, [chat("How is it?")], a_profile(tools=TOOLS))
    (long,) = run_rows(engine, [(*chat("How is it?"), said, result)], a_profile(tools=TOOLS))
    assert (long.finish_reason, long.input_tokens > short.input_tokens + 8) == ("length", True)


# ---- embeddings ----------------------------------------------------------------------------------


def test_several_texts_of_a_row_have_a_vector_each(embedder):
    one, two = run_rows(embedder, ["A cat.", "Interest rates rose."])
    (both,) = run_rows(embedder, [Several(("A cat.", "Interest rates rose."))])
    vectors = [array("f", base64.b64decode(text)) for text in answers_of(both)]
    for found, alone in zip([both.embedding, *vectors], (one, one, two), strict=True):
        assert all(abs(a - b) < 1e-3 for a, b in zip(found, alone.embedding, strict=True))
    assert both.input_tokens == one.input_tokens + two.input_tokens


def test_one_of_several_texts_that_cannot_be_embedded_is_the_rows_error(embedder):
    (bad,) = run_rows(embedder, [Several(("short", "long " * 400))])
    assert (bad.error_code, bad.answers) == ("context_length_exceeded", None)
    assert bad.error_message.startswith("input[1]: ")


def test_the_models_own_size_may_be_asked_for(embedder):
    (result,) = run_rows(embedder, ["A cat."], a_profile("embedding", sampling="{}", dimensions=384))
    assert len(result.embedding) == 384
