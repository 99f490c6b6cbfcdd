"""Calls of tools as vLLM's own parsers find them in what a model wrote. It imports vLLM, and starts no engine."""

import json

import pytest

from infra.engines.backend import StartFailed
from tests.support.prepared import prepared_model

pytestmark = [pytest.mark.integration, pytest.mark.engine, pytest.mark.timeout(300)]
TOOLS = json.dumps([{"type": "function", "function": {"name": "weather_of", "parameters": {"type": "object"}}}])
CALL = '<tool_call>{"name": "weather_of", "arguments": {"city": "Oslo"}}</tool_call>'


@pytest.fixture(scope="module")
def tools():
    folder = prepared_model("tiny")
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy

    from infra.engines import vllm_tools  # noqa: PLC0415 - imports vLLM

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return vllm_tools, lambda name: vllm_tools.ToolCalls(name, tokenizer, TOOLS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("No call.", ("No call.", [])),
        (CALL, (None, [("weather_of", '{"city": "Oslo"}')])),
        (f"Let me see.\n{CALL}", ("Let me see.\n", [("weather_of", '{"city": "Oslo"}')])),
        ("<tool_call>{broken</tool_call>", ("<tool_call>{broken</tool_call>", [])),
    ],
)
def test_calls_are_found_and_what_stands_beside_them(tools, text, found):
    _, calls_of = tools
    assert calls_of("hermes")(text) == found


def test_a_parser_that_goes_by_special_tokens_keeps_them(tools):
    _, calls_of = tools
    assert calls_of("hermes").skip_special_tokens is False


def test_an_unknown_parser_is_refused_with_the_nearest_name(tools):
    module, _ = tools
    module.check_parser("hermes")
    with pytest.raises(StartFailed, match="unknown tool_call_parser hermess: did you mean hermes"):
        module.check_parser("hermess")
