"""Answer lines of every endpoint have OpenAI's shape: its own client's types take them, and nothing is lost."""

from __future__ import annotations

import base64
import json
from array import array

import pyarrow.parquet as pq
import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from infra.data.frozen import freeze
from jobs.errors import NotFound
from jobs.ports.engine import EngineResult
from tests.support.data import Kit
from tests.support.lines import TOOL, USER, WEATHER, answered, bodies_of, job_of, settled

pytestmark = pytest.mark.unit
CHAT, TEXT, EMBED, RESPOND = "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"
FUNCTION = {"type": "function", **WEATHER}
SUNNY = [{"role": "user", "content": "the weather?"}]


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path)
    yield made
    made.close()


def strictly(kind, body):
    """What it is to OpenAI's client, with nothing in it that the client does not know."""
    found = kind.model_validate(body, strict=True)
    assert extras(found) == []
    return found


def extras(found, place="$"):
    if isinstance(found, list):
        return [x for n, one in enumerate(found) for x in extras(one, f"{place}[{n}]")]
    if not hasattr(type(found), "model_fields"):
        return []
    own = [f"{place}.{name}" for name in found.model_extra or ()]
    return own + [x for name in type(found).model_fields for x in extras(getattr(found, name), f"{place}.{name}")]


def opened(kit, url, *bodies):
    """The prompts that a worker reads."""
    job, side = job_of(kit, url, *bodies), kit.side()
    return [prompt for task in kit.plan(job, side=side) for prompt in side.source.open(job, task).prompts]


# ---- chat ---------------------------------------------------------------------------------------


def test_a_plain_chat_has_one_choice_and_its_usage(kit):
    (body,) = bodies_of(answered(kit, CHAT, {}))
    found = strictly(ChatCompletion, body)
    assert (found.id, found.model, found.choices[0].finish_reason) == ("chatcmpl-job1-0", "fake", "stop")
    assert found.choices[0].message.content.startswith("fake ")
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_several_choices_pay_for_the_prompt_once(kit):
    one, four = bodies_of(answered(kit, CHAT, {"n": 1}, {"n": 4}))
    found = strictly(ChatCompletion, four)
    texts = [choice.message.content for choice in found.choices]
    assert ([choice.index for choice in found.choices], len(set(texts))) == ([0, 1, 2, 3], 4)
    assert found.usage.prompt_tokens == one["usage"]["prompt_tokens"]
    assert found.usage.completion_tokens == sum(-(-len(text) // 4) for text in texts)


def test_a_row_is_truncated_if_any_of_its_choices_is(kit):
    job = job_of(kit, CHAT, {"n": 6, "max_tokens": 30})
    settled(kit, job)
    (row,) = kit.results().rows(job)
    reasons = {choice["finish_reason"] for choice in json.loads(row["answer"])["choices"]}
    assert (reasons, row["outcome"]) == ({"stop", "length"}, "truncated")


def test_log_probabilities_are_told_at_every_place(kit):
    none, some = bodies_of(answered(kit, CHAT, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2}))
    content = strictly(ChatCompletion, some).choices[0].logprobs.content
    assert "".join(place.token for place in content) == some["choices"][0]["message"]["content"]
    assert bytes(content[0].bytes).decode() == content[0].token
    assert [len(place.top_logprobs) for place in content] == [2] * len(content)
    assert {len(place["top_logprobs"]) for place in none["choices"][0]["logprobs"]["content"]} == {0}


def test_a_stop_text_ends_the_answer_and_is_not_in_it(kit):
    whole, cut = bodies_of(answered(kit, CHAT, {"seed": 7}, {"seed": 7, "stop": [" "]}))
    assert " " in whole["choices"][0]["message"]["content"]
    assert cut["choices"][0]["message"]["content"] == "fake"


def test_a_seed_decides_the_answer(kit):
    one, same, other = bodies_of(answered(kit, CHAT, {"seed": 1}, {"seed": 1}, {"seed": 2}))
    texts = [body["choices"][0]["message"]["content"] for body in (one, same, other)]
    assert texts[0] == texts[1] != texts[2]


def test_a_model_calls_a_tool_where_it_wants_to(kit):
    called, said = bodies_of(answered(kit, CHAT, {"tools": [TOOL], "messages": SUNNY}, {"tools": [TOOL]}))
    choice = strictly(ChatCompletion, called).choices[0]
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content, call.function.name) == ("tool_calls", None, "get_weather")
    assert json.loads(call.function.arguments).keys() == {"city", "days"}
    assert (said["choices"][0]["finish_reason"], "tool_calls" in said["choices"][0]["message"]) == ("stop", False)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_tool_that_must_be_called_is_called(kit, choice):
    other = {"type": "function", "function": {"name": "get_time"}}
    (body,) = bodies_of(answered(kit, CHAT, {"tools": [TOOL, other], "tool_choice": choice}))
    choice = strictly(ChatCompletion, body).choices[0]
    assert choice.message.tool_calls[0].function.name in {"get_weather", "get_time"}
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)


def test_with_tool_choice_none_nothing_is_shown_or_called(kit):
    plain, none = bodies_of(
        answered(kit, CHAT, {"messages": SUNNY}, {"messages": SUNNY, "tools": [TOOL], "tool_choice": "none"})
    )
    assert plain["choices"] == none["choices"]


HISTORY = [
    *SUNNY,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
]


def test_calls_and_their_results_are_part_of_a_chat(kit):
    calls = '{"tool_calls":[{"function":{"arguments":"{}","name":"get_weather"},"id":"c1","type":"function"}]}'
    assert opened(kit, CHAT, {"messages": HISTORY}) == [
        (("user", "the weather?"), ("assistant", "", calls), ("tool", "rain", '{"tool_call_id":"c1"}'))
    ]


@pytest.mark.parametrize(("strict", "code"), [(True, "schema_mismatch"), (False, None)])
def test_arguments_that_do_not_fit_are_an_error_where_the_tool_is_strict(kit, strict, code):
    def answer(request, _profile):
        entry = {"text": None, "finish_reason": "stop", "calls": [["get_weather", '{"city":1}']]}
        return EngineResult(request.id, "stop", "<call>", None, 9, 0, 3, answers=json.dumps([entry]))

    tool = {"type": "function", "function": {**WEATHER, "strict": strict}}
    (line,) = answered(kit, CHAT, {"tools": [tool]}, answer=answer)
    assert line["response"]["body"]["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":1}'
    assert (line["error"] or {"code": None})["code"] == code


def test_without_parallel_calls_the_first_one_counts(kit):
    def answer(request, _profile):
        entry = {"text": "so", "finish_reason": "stop", "calls": [["get_weather", "{}"], ["get_weather", "{}"]]}
        return EngineResult(request.id, "stop", "<calls>", None, 9, 0, 3, answers=json.dumps([entry]))

    bodies = [{"tools": [TOOL], "parallel_tool_calls": parallel} for parallel in (True, False)]
    found = bodies_of(answered(kit, CHAT, *bodies, answer=answer))
    assert [len(body["choices"][0]["message"]["tool_calls"]) for body in found] == [2, 1]


# ---- completions --------------------------------------------------------------------------------


def test_a_completion_of_a_text_and_one_of_token_ids(kit):
    text, ids = bodies_of(answered(kit, TEXT, {}, {"prompt": [1, 2, 3]}))
    assert strictly(Completion, text).choices[0].text.startswith("fake ")
    assert strictly(Completion, ids).usage.prompt_tokens == 3


def test_several_prompts_have_their_choices_one_after_another(kit):
    single, several = bodies_of(answered(kit, TEXT, {"n": 2}, {"prompt": ["Once upon a time", [5, 6]], "n": 2}))
    texts = [choice["text"] for choice in strictly(Completion, several).model_dump()["choices"]]
    assert texts[:2] == [choice["text"] for choice in single["choices"]]
    assert len(set(texts)) == 4
    assert several["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"] + 2


def test_log_probabilities_of_a_completion(kit):
    (body,) = bodies_of(answered(kit, TEXT, {"logprobs": 2}))
    found = strictly(Completion, body).choices[0]
    places = zip(found.logprobs.tokens, found.logprobs.text_offset, strict=True)
    assert all(found.text[at : at + len(token)] == token for token, at in places)
    assert found.logprobs.top_logprobs[0][found.logprobs.tokens[0]] == found.logprobs.token_logprobs[0]


# ---- embeddings ---------------------------------------------------------------------------------


def test_an_embedding_of_a_text_of_ids_and_of_several_texts(kit):
    one, ids, several = bodies_of(answered(kit, EMBED, {}, {"input": [4, 5, 6]}, {"input": ["a text", "another"]}))
    found = [strictly(CreateEmbeddingResponse, body) for body in (one, ids, several)]
    assert [len(body.data) for body in found] == [1, 1, 2]
    assert found[2].data[0].embedding == found[0].data[0].embedding
    assert [body.usage.total_tokens for body in found] == [2, 3, 4]


def test_base64_holds_the_same_numbers(kit):
    inputs = ["a text", ["a text", "another"]]
    plain = bodies_of(answered(kit, EMBED, *({"input": i} for i in inputs)))
    packed = bodies_of(answered(kit, EMBED, *({"input": i, "encoding_format": "base64"} for i in inputs)))
    vectors = [[data["embedding"] for data in body["data"]] for body in plain]
    unpacked = [[array("f", base64.b64decode(d["embedding"])).tolist() for d in body["data"]] for body in packed]
    assert unpacked == vectors


@pytest.mark.parametrize("sizes", [(2, 2), (2, None)], ids=["all alike", "mixed"])
def test_a_shorter_vector_is_as_long_as_asked(kit, sizes):
    found = bodies_of(answered(kit, EMBED, *({"dimensions": s} for s in sizes), embedding_size=-1))
    assert [len(body["data"][0]["embedding"]) for body in found] == [s or 4 for s in sizes]


# ---- responses ----------------------------------------------------------------------------------


def test_a_response_repeats_its_request(kit):
    asked = {"instructions": "Be kind.", "metadata": {"k": "v"}, "temperature": 0.5, "max_output_tokens": 90}
    (body,) = bodies_of(answered(kit, RESPOND, asked))
    found = strictly(Response, body)
    assert (found.status, found.output_text[:5], found.instructions) == ("completed", "fake ", "Be kind.")
    assert (found.metadata, found.temperature, found.max_output_tokens) == ({"k": "v"}, 0.5, 90)
    assert found.usage.total_tokens == found.usage.input_tokens + found.usage.output_tokens


def test_a_response_that_was_cut_is_incomplete(kit):
    (body,) = bodies_of(answered(kit, RESPOND, {"max_output_tokens": 3}))
    found = strictly(Response, body)
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_a_response_follows_a_schema(kit):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    asked = {"text": {"format": {"type": "json_schema", "name": "number", "schema": schema}}}
    (body,) = bodies_of(answered(kit, RESPOND, asked))
    assert json.loads(strictly(Response, body).output_text).keys() == {"n"}


def test_a_response_calls_a_tool(kit):
    (body,) = bodies_of(answered(kit, RESPOND, {"input": "the weather?", "tools": [FUNCTION]}))
    (call,) = strictly(Response, body).output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")


def test_items_of_an_earlier_answer_are_its_history(kit):
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "the weather?"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
    ]
    chat, response = (opened(kit, *row) for row in ((CHAT, {"messages": HISTORY}), (RESPOND, {"input": items})))
    assert response == chat


# ---- the result folder --------------------------------------------------------------------------


def test_the_column_is_there_only_where_a_line_needs_it(kit):
    plain = job_of(kit, CHAT, {}, {"temperature": 0.1})
    settled(kit, plain)
    assert "answer" not in pq.read_schema(kit.parts["job1"][0].uri).names


def test_the_column_is_null_in_rows_that_need_it_not(kit):
    job = job_of(kit, CHAT, {}, {"n": 2}, {"messages": USER})
    settled(kit, job)
    table = pq.read_table(kit.parts["job1"][0].uri)
    rows = dict(zip(table["custom_id"].to_pylist(), table["answer"].to_pylist(), strict=True))
    assert [rows[f"r{n}"] is None for n in range(3)] == [True, False, True]
    choices = json.loads(rows["r1"])["choices"]
    outputs = dict(zip(table["custom_id"].to_pylist(), table["output"].to_pylist(), strict=True))
    assert (choices[0]["text"], len(choices)) == (outputs["r1"], 2)


@pytest.mark.parametrize("extra", [{"n": 2}, {"tools": [TOOL]}], ids=str)
def test_a_lost_file_of_columns_is_missed_before_a_row_is_read_where_lines_ask_for_more_than_a_text(kit, extra):
    job = kit.submit(kit.jsonl("more.jsonl", [{"messages": USER, **extra}]))
    kit.objects.delete(kit.side().jobs.folder(job).output_schema)
    kit.side().jobs._ready.clear()
    with pytest.raises(NotFound, match=r"output\.arrow"):
        kit.run(job)


def test_the_columns_of_plain_lines_are_known_without_a_file(kit):
    job = kit.submit(kit.jsonl("plain.jsonl", [{"messages": USER}]))
    folder = kit.side().jobs.folder(job)
    kit.run(job)
    assert (job.spec.plain, kit.objects.facts(folder.output_schema)) == (True, None)


def test_a_retry_of_a_job_that_has_its_columns_in_a_file_has_them_in_one_too(kit):
    job = kit.submit(kit.jsonl("plain.jsonl", [{"messages": USER}]))
    frozen = kit.side().jobs.of(job)
    old = job.evolve(id="job2", spec=job.spec.evolve(plain=False))  # as an earlier release wrote it
    kit.files["job2"] = kit.files[job.id]
    folders = [kit.side().jobs.folder(job.evolve(id=name)) for name in ("job2", "child")]
    freeze(kit.objects, folders[0], inputs=frozen.schema, output=frozen.output)
    kit.results().select_rows(old, frozenset({"error"}), "child")
    assert kit.objects.read(folders[0].output_schema) == kit.objects.read(folders[1].output_schema)
