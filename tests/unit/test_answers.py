"""Several answers of a row as one result: its tokens, its end, its calls."""

import json

import pytest

from infra.engines.answers import Generated, extractor, generated_row
from jobs.ports.engine import RequestProfile

pytestmark = pytest.mark.unit


def an_answer(text="a", reason="stop", cached=0, **changes):
    counts = {"input_tokens": 10, "cached_tokens": cached, "output_tokens": 3}
    return Generated(text=text, finish_reason=reason, **{**counts, **changes})


def a_profile(choice):
    return RequestProfile(key="k", kind="chat", tools="[]", tool_choice=choice)


def test_a_prompt_is_paid_once_and_as_cached_only_what_was_so_before_the_row():
    inputs = [[an_answer(cached=4), an_answer(cached=8)], [an_answer(cached=9, input_tokens=20)]]
    result = generated_row(1, inputs, None)
    assert (result.input_tokens, result.cached_tokens, result.output_tokens) == (30, 13, 9)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["stop", "stop"], ("stop", None)),
        (["stop", "length"], ("length", None)),
        (["error", "length"], ("error", "engine_error")),
        (["error", "abort"], ("abort", None)),
    ],
)
def test_the_worst_end_is_the_rows(reasons, expected):
    result = generated_row(1, [[an_answer(reason=reason) for reason in reasons]], None)
    assert (result.finish_reason, result.error_code if expected[0] == "error" else None) == expected


@pytest.mark.parametrize(
    ("choice", "text", "entry"),
    [
        ("required", '[{"name":"f","parameters":{"a":1}}]', {"text": None, "calls": [["f", '{"a":1}']]}),
        ("required", '[{"name":"f","par', {"text": '[{"name":"f","par'}),
        ("f", '{"a":1}', {"text": None, "calls": [["f", '{"a":1}']]}),
        ("f", '{"a":', {"text": '{"a":'}),
        ("auto", "call f", {"text": "beside", "calls": [["f", "{}"]]}),
    ],
)
def test_calls_are_read_by_what_the_output_was_held_to(choice, text, entry):
    extract = extractor(a_profile(choice), lambda _: ("beside", [("f", "{}")]))
    result = generated_row(1, [[an_answer(text)]], extract)
    assert json.loads(result.answers) == [{"finish_reason": "stop", **entry}]
    assert result.text == text
