"""What a line may ask, by endpoint: what is carried, what asks for nothing, and a refusal by name for the rest."""

from __future__ import annotations

import pytest

from infra.data.bodies import BadBody, Rules
from infra.data.endpoints import ENDPOINTS, outline, read_body
from infra.data.line_fields import CARRIED, WITHOUT_EFFECT
from jobs.ports.engine import Several
from tests.support.lines import BODIES, TOOL, USER, WEATHER

pytestmark = pytest.mark.unit
CHAT, TEXT, EMBED, RESPOND = "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"
FUNCTION = {"type": "function", **WEATHER}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def read(url, /, rules=None, **body):
    return read_body({"model": "m", **BODIES[url], **body}, rules or Rules(endpoint=url))


def refused(url, /, rules=None, **body):
    with pytest.raises(BadBody) as caught:
        read(url, rules, **body)
    return str(caught.value), caught.value.code, caught.value.param


@pytest.mark.parametrize("url", ENDPOINTS)
def test_the_least_that_a_line_says_is_taken(url):
    assert read(url).sampling == {}


@pytest.mark.parametrize("url", ENDPOINTS)
@pytest.mark.parametrize(
    "name",
    [
        *("chat_template", "cache_salt", "vllm_xargs", "structured_outputs", "guided_json", "guided_regex"),
        *("guided_choice", "guided_grammar", "mm_processor_kwargs", "documents", "add_generation_prompt"),
        *("continue_final_message", "priority", "request_id", "kv_transfer_params", "truncate_prompt_tokens"),
        *("prompt_logprobs", "prompt_embeds", "logits_processors", "allowed_token_ids", "return_token_ids"),
        *("functions", "function_call", "audio", "prediction", "web_search_options", "reasoning_effort", "suffix"),
        *("previous_response_id", "conversation", "include", "prompt_cache_key", "stream_options", "use_beam_search"),
        "never_heard_of",
    ],
)
def test_a_field_that_cannot_be_done_is_refused_by_its_name(url, name):
    message, code, param = refused(url, **{name: "x"})
    assert (code, param) == ("unsupported_parameter", f"body.{name}")
    assert message.startswith(f"the body field {name}")


@pytest.mark.parametrize(("url", "name"), [(url, name) for url, names in WITHOUT_EFFECT.items() for name in names])
def test_a_field_without_effect_is_taken_only_where_it_asks_for_nothing(url, name):
    nothing = {"modalities": ["text"], "truncation": "disabled", "best_of": 1, "metadata": {"a": "b"}, "user": "me"}
    nothing |= {"service_tier": "auto", "safety_identifier": "me"}
    assert read(url, **{name: None}).echo == read(url, **{name: nothing.get(name, False)}).echo
    message, code, param = refused(url, **{name: {"some": ["thing"]}})
    assert (code, param) == ("unsupported_parameter", f"body.{name}")
    assert message.startswith(f"`{name}` can only be ")


def test_no_field_is_both_carried_and_without_effect():
    assert [name for url in ENDPOINTS for name in CARRIED[url] if name in WITHOUT_EFFECT[url]] == []


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"chat_template": "{{ evil }}"}, "chat_template_kwargs.chat_template cannot be set"),
        ({"tools": 1}, "chat_template_kwargs.tools cannot be set"),
        ({"continue_final_message": True}, "chat_template_kwargs.continue_final_message cannot be set"),
        ({"x": {"deep": 1}}, "chat_template_kwargs.x must be true, false, a number or a short text"),
        ({"x": "y" * 1001}, "chat_template_kwargs.x must be true, false, a number or a short text"),
    ],
)
def test_a_chat_template_gets_no_more_than_plain_values(kwargs, words):
    assert refused(CHAT, chat_template_kwargs=kwargs) == (words, "invalid_request", "body.chat_template_kwargs")
    assert read(CHAT, chat_template_kwargs={"enable_thinking": False}).sampling["chat_template_kwargs"]


@pytest.mark.parametrize(
    ("url", "body", "words"),
    [
        (CHAT, {"n": 129}, "n must be at least 1 and at most 128, not 129"),
        (CHAT, {"top_logprobs": 2}, "`top_logprobs` needs `logprobs`: true"),
        (CHAT, {"logprobs": 3}, "`logprobs` must be true or false, not 3"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "`top_logprobs` must be a whole number from 0 to 20, not 21"),
        (CHAT, {"seed": 2**63}, "seed must be at least -9223372036854775808 and at most 9223372036854775807, not"),
        (CHAT, {"stop": ["x" * 1001]}, "stop has a text of more than 1000 characters"),
        (CHAT, {"stop_token_ids": [1] * 1025}, "stop_token_ids has 1025 entries; at most 1024 are taken"),
        (CHAT, {"logit_bias": {"a": 1}}, "logit_bias must be an object from token ids to numbers"),
        (CHAT, {"max_completion_tokens": 0}, "max_tokens must be at least 1, not 0"),
        (TEXT, {"logprobs": True}, "logprobs must be a whole number, not True"),
        (TEXT, {"prompt": None}, "`prompt` must be a text, a list of texts, a list of token ids, or"),
        (TEXT, {"prompt": ""}, "prompt is empty"),
        (TEXT, {"prompt": ["a", ""]}, "prompt[1] is empty"),
        (TEXT, {"prompt": [1, -1]}, "prompt[1] is no token id"),
        (TEXT, {"prompt": [[1], ["a"]]}, "prompt[1][0] is no token id"),
        (TEXT, {"prompt": [True]}, "prompt[0] must be a text or a list of token ids"),
        (TEXT, {"prompt": ["a"] * 65, "n": 2}, "`prompt` times `n` comes to 130 answers; at most 128 are made"),
        (TEXT, {"prompt": ["a"] * 129}, "`prompt` has 129 inputs; at most 128 are taken"),
        (TEXT, {"best_of": 2}, "`best_of` can only be 1 here (use n)"),
        (TEXT, {"echo": True}, "`echo` can only be false here"),
        (EMBED, {"input": []}, "`input` must be a text, a list of texts"),
        (EMBED, {"input": ["a"] * 2049}, "`input` has 2049 inputs; at most 2048 are taken"),
        (EMBED, {"encoding_format": "int8"}, "`encoding_format` must be float or base64, not 'int8'"),
        (EMBED, {"dimensions": 0}, "`dimensions` must be a whole number from 1 to"),
        (EMBED, {"temperature": 1}, "the body field temperature cannot be used here"),
        (RESPOND, {"store": True}, "`store` can only be false here (no answer is kept to be asked for by its id)"),
        (RESPOND, {"max_tokens": 3}, "the body field max_tokens (use max_output_tokens) cannot be used here"),
        (RESPOND, {"input": [{"type": "input_image"}]}, "input[0] is of type 'input_image'; known are message"),
        (RESPOND, {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0] is of type"),
        (RESPOND, {"tools": [{"type": "web_search"}]}, "tools[0] is of type 'web_search'; only functions are taken"),
        (RESPOND, {"text": {"verbosity": "low"}}, "`text` can only have `format`"),
        (RESPOND, {"metadata": {"a": 1}}, "`metadata` takes names of at most 64 characters and texts"),
    ],
)
def test_what_is_wrong_with_a_value_is_said(url, body, words):
    message, _, param = refused(url, **body)
    assert message.startswith(words)
    assert param is not None


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "refusal", 7])
def test_parts_other_than_text_are_refused_by_name(kind):
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": kind}]}]
    message, _, param = refused(CHAT, messages=parts)
    assert message == f"messages[0].content[1] is of type {kind!r}; only text parts are taken"
    assert param == "body.messages"


# ---- tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (CHAT, {"tools": [TOOL]}),
        (CHAT, {"messages": [*USER, {"role": "assistant", "tool_calls": [CALL]}]}),
        (CHAT, {"messages": [*USER, {"role": "tool", "tool_call_id": "c", "content": "x"}]}),
        (RESPOND, {"tools": [FUNCTION]}),
        (RESPOND, {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}),
    ],
)
def test_where_the_model_has_no_parser_tools_are_refused_with_the_mend(url, body):
    mend = "nothing says how m writes its calls"
    message, _, _ = refused(url, Rules(endpoint=url, no_tools=mend), **body)
    assert message.endswith(f"cannot be used: {mend}")
    assert read(url, **body).prompt


@pytest.mark.parametrize(
    ("choice", "expected"),
    [(None, "auto"), ("auto", "auto"), ("required", "required"), (NAMED, "get_weather")],
)
def test_what_must_be_called_guides_the_output(choice, expected):
    found = read(CHAT, tools=[TOOL], tool_choice=choice)
    assert (found.tool_choice, found.schema is None) == (expected, expected == "auto")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": {}}, "`tools` must be a list"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0] is of type 'custom'"),
        ({"tools": [{"type": "function"}]}, "tools[0] must be an object with the name of a function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0] has the name 'a b'"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, "tools[0].parameters must be"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}]},
            "tools[0].parameters cannot be used: at /type",
        ),
        ({"tools": [TOOL, TOOL]}, "`tools` has the function get_weather twice"),
        ({"tool_choice": "required"}, "`tool_choice` needs `tools`"),
        ({"tools": [TOOL], "tool_choice": "any"}, "`tool_choice` must be auto, none, required, or a function"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "`tool_choice` names 'x', which is not among the tools",
        ),
        ({"tools": [TOOL], "parallel_tool_calls": "no"}, "`parallel_tool_calls` must be true or false"),
        (
            {"tools": [TOOL], "response_format": {"type": "json_object"}},
            "`response_format` cannot be used with `tools`",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": []}]}, "messages[0].tool_calls must be a list with at"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0] must be a call of"),
    ],
)
def test_what_is_wrong_with_tools_is_said(body, words):
    message, _, param = refused(CHAT, **body)
    assert message.startswith(words)
    assert param is not None


def test_definitions_of_two_functions_meet_in_one_schema():
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": n, "parameters": parameters}} for n in ("f", "g")]
    assert '"$defs":{"x":{"type":"integer"}}' in read(CHAT, tools=tools, tool_choice="required").schema
    tools[1] = {"type": "function", "function": {"name": "g", "parameters": {**parameters, "$defs": {"x": {}}}}}
    assert refused(CHAT, tools=tools, tool_choice="required")[0].startswith("$defs/x of the function g is another one")


# ---- what planning asks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "body", "expected"),
    [
        (CHAT, {"n": 3, "max_tokens": 5}, ("user\nhello there", 1, 3, 5)),
        (CHAT, {"messages": 1}, ("", 0, 0, None)),
        (TEXT, {"prompt": ["a", "b"], "n": 2}, ("a\nb", 0, 4, None)),
        (RESPOND, {"instructions": "Be kind.", "max_output_tokens": 7}, (
            "system\nBe kind.\nuser\nhello there", 2, 1, 7,
        )),
    ],
)  # fmt: skip
def test_a_request_in_outline(url, body, expected):
    assert tuple(outline({"model": "m", **BODIES[url], **body}, url)) == expected


def test_one_input_in_a_list_is_that_input():
    assert [read(TEXT, prompt=p).prompt for p in (["a"], [[1, 2]], ["a", "b"])] == ["a", (1, 2), Several(("a", "b"))]


@pytest.mark.parametrize(("asked", "sizes", "taken"), [(256, None, True), (384, (384,), True), (256, (384,), False)])
def test_dimensions_are_what_the_model_can(asked, sizes, taken):
    rules = Rules(endpoint=EMBED, sizes=sizes)
    if taken:
        assert read(EMBED, rules, dimensions=asked).dimensions == asked
    else:
        assert refused(EMBED, rules, dimensions=asked)[0] == "`dimensions` is 256, but this model's vectors have 384"
