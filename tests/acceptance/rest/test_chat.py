"""Chats and completions that somebody waits for, with the stock client: as a batch line has them, and as they come."""

import json

import openai
import pytest

from jobs.tenancy import Alias
from tests.support.api import talking, until
from tests.support.front import SmallFront

pytestmark = pytest.mark.acceptance
HELLO = [{"role": "user", "content": "Name three rivers."}]
WEATHER = [{"role": "user", "content": "What is the weather in Lima?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"city": {"enum": ["Lima"]}}, "required": ["city"]},
        },
    }
]


@pytest.fixture(scope="module")
def front():
    return SmallFront()


@pytest.fixture(scope="module")
def town(tmp_path_factory, front):
    with talking(tmp_path_factory.mktemp("chat"), front=front) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(town):
    return town.openai()


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_a_chat_is_answered_and_its_id_is_the_one_that_is_charged(client, front):
    made = client.chat.completions.create(model="fake", messages=HELLO, max_tokens=8)
    asked = front.asked[-1]
    found = (made.id, made.object, made.model, made.choices[0].finish_reason, made.usage.completion_tokens)
    assert found == (asked.id, "chat.completion", "fake", "length", 8)
    assert made.usage.total_tokens == made.usage.prompt_tokens + 8
    assert (asked.tenant, asked.endpoint, asked.seats, asked.output_tokens) == ("acme", "/v1/chat/completions", 1, 8)


def test_a_stream_says_what_the_whole_answer_says(client):
    whole = client.chat.completions.create(model="fake", messages=HELLO, max_tokens=12)
    options = {"include_usage": True}
    chunks = [
        *client.chat.completions.create(
            model="fake", messages=HELLO, max_tokens=12, stream=True, stream_options=options
        )
    ]
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_the_option_has_no_usage(client):
    chunks = [*client.chat.completions.create(model="fake", messages=HELLO, max_tokens=4, stream=True)]
    assert {chunk.usage for chunk in chunks} == {None}


def test_the_clients_own_helper_of_streams_works(client):
    with client.chat.completions.stream(model="fake", messages=HELLO) as stream:
        final = stream.get_final_completion()
    whole = client.chat.completions.create(model="fake", messages=HELLO)
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_several_choices_come_side_by_side_with_their_log_probabilities(client):
    asked = {
        "model": "fake",
        "messages": HELLO,
        "max_tokens": 6,
        "n": 2,
        "logprobs": True,
        "top_logprobs": 2,
        "seed": 7,
    }
    whole = client.chat.completions.create(**asked)
    texts, places = ["", ""], [[], []]
    for chunk in client.chat.completions.create(**asked, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] += choice.delta.content or ""
        places[choice.index] += choice.logprobs.content if choice.logprobs else []
    assert texts == [choice.message.content for choice in whole.choices]
    assert places == [choice.logprobs.content for choice in whole.choices]


def test_a_stop_text_ends_an_answer(client):
    (choice,) = client.chat.completions.create(model="fake", messages=HELLO, max_tokens=40, stop=[" "]).choices
    assert (choice.message.content, choice.finish_reason) == ("fake", "stop")


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "look_up"}}])
def test_a_tool_is_called_whole_at_the_end_of_a_stream(client, choice):
    asked = {"model": "fake", "messages": WEATHER, "tools": TOOLS, "tool_choice": choice}
    whole = client.chat.completions.create(**asked).choices[0]
    with client.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion().choices[0]
    (call,), (same,) = whole.message.tool_calls, streamed.message.tool_calls
    assert (whole.finish_reason, streamed.finish_reason) == ("tool_calls", "tool_calls")
    assert (call.function.name, json.loads(call.function.arguments)) == ("look_up", {"city": "Lima"})
    assert (same.function.name, same.function.arguments) == (call.function.name, call.function.arguments)


def test_an_answer_with_tools_that_calls_none_is_streamed_as_text(client):
    chunks = [*client.chat.completions.create(model="fake", messages=HELLO, tools=TOOLS, max_tokens=8, stream=True)]
    whole = client.chat.completions.create(model="fake", messages=HELLO, tools=TOOLS, max_tokens=8)
    assert text_of(chunks) == whole.choices[0].message.content


def test_what_a_tool_said_can_be_sent_back(client):
    call = client.chat.completions.create(model="fake", messages=WEATHER, tools=TOOLS).choices[0].message
    answer = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "Mist."}
    done = client.chat.completions.create(model="fake", messages=[*HELLO, call, answer], tools=TOOLS, max_tokens=4)
    assert done.choices[0].message.content


def test_an_answer_keeps_to_its_schema(client):
    schema = {"type": "object", "properties": {"river": {"type": "string"}}, "required": ["river"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "river", "schema": schema}}
    made = client.chat.completions.create(model="fake", messages=HELLO, response_format=wanted)
    assert list(json.loads(made.choices[0].message.content)) == ["river"]


def test_a_completion_goes_on_whole_and_as_a_stream(client):
    asked = {"model": "fake", "prompt": ["The longest river is", "The highest hill is"], "max_tokens": 6, "logprobs": 1}
    whole = client.completions.create(**asked)
    texts, offsets = ["", ""], [[], []]
    for chunk in client.completions.create(**asked, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] += choice.text
        offsets[choice.index] += choice.logprobs.text_offset if choice.logprobs else []
    assert texts == [choice.text for choice in whole.choices]
    assert offsets == [choice.logprobs.text_offset for choice in whole.choices]


def test_an_alias_is_echoed_and_the_model_behind_it_is_asked(town, client, front):
    town.home.store.put_alias(Alias(alias="rivers-1", model="fake"), "test")
    made = client.chat.completions.create(model="rivers-1", messages=HELLO, max_tokens=2)
    assert (made.model, front.asked[-1].model, front.asked[-1].asked_model) == ("rivers-1", "fake", "rivers-1")


def test_a_key_and_a_price_are_known_for_two_seconds_without_a_look_into_the_database(town, client, monkeypatch):
    client.chat.completions.create(model="fake", messages=HELLO, max_tokens=2)
    looks = []
    for name in ("key_by_digest", "aliases", "price"):
        monkeypatch.setattr(type(town.home.store), name, lambda *_, name=name, **__: looks.append(name))
    client.chat.completions.create(model="fake", messages=HELLO, max_tokens=2)
    assert looks == []


def test_a_client_that_leaves_ends_its_request(town, front):
    endless = [{"role": "user", "content": "[endless] whole"}]
    with pytest.raises(openai.APITimeoutError):
        town.openai(timeout=0.3).chat.completions.create(model="fake", messages=endless)
    until(lambda: front.asked[-1].id in front.left, "the word that the client left")


def test_a_client_that_leaves_a_stream_ends_its_request(client, front):
    endless = [{"role": "user", "content": "[endless] stream"}]
    with client.chat.completions.create(model="fake", messages=endless, stream=True) as stream:
        pieces = [chunk.choices[0].delta.content for chunk, _ in zip(stream, range(4), strict=False)]
    until(lambda: front.asked[-1].id in front.left, "the word that the client left")
    assert set(pieces[1:]) >= {"word "}
