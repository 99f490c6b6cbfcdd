"""Interactive requests through a real `nightmill up` to real models, on one start of their engines."""

import json

import pytest

from tests.support.engines import shows_tools
from tests.support.prepared import prepared_model
from tests.support.upped import until, upped
from tests.support.ways import BODIES, check_every_way

pytestmark = [pytest.mark.integration, pytest.mark.engine, pytest.mark.timeout(600)]

SEATS = 4
POOLS = f"""
api_port = 0
kv_cache_gib = 1
request_wait_s = 60
[pools.talk]
model = "smollm2"
purpose = "interactive"
lends = true
kept_free = 0.0
engine_args = {{ max_num_seqs = {SEATS}, tool_call_parser = "hermes" }}
[pools.embed]
model = "minilm"
purpose = "embedding"
"""
MODELS = {"fake": "smollm2", "embedder": "minilm"}
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather_of", "parameters": {**WEATHER, "additionalProperties": False}}},
    {"type": "function", "function": {"name": "time_now"}},
]
CHOICES = {
    "required": "required",
    "named": {"type": "function", "function": {"name": "weather_of"}},
    "auto": "auto",
}
ASKED = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
    "max_tokens": 60,
    "temperature": 0,
}
SHORT, LONG = 96, 2000
"""Tokens of a row."""


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("up")
    models = folder / "home" / "models"
    models.mkdir(parents=True)
    shows_tools(prepared_model("smollm2"), models / "smollm2")
    (models / "minilm").symlink_to(prepared_model("minilm"), target_is_directory=True)
    with upped(folder, POOLS) as opened:
        opened.home.example_prices(*MODELS.values())
        for model in MODELS.values():
            opened.ready(opened.client(opened.key("first")), model, within_s=240)
        yield opened


@pytest.mark.parametrize("endpoint", BODIES)
def test_one_piece_of_work_is_the_same_and_costs_the_same_in_every_way(up, client, tenant, endpoint):
    check_every_way(up, client, tenant, endpoint, model=MODELS[BODIES[endpoint]["model"]])


# ---- tools --------------------------------------------------------------------------------------


def said_by(completion):
    """A stream begins with a text of no length, as vLLM's own do."""
    (choice,), usage = completion.choices, completion.usage
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    return choice.finish_reason, choice.message.content or None, calls, (usage.prompt_tokens, usage.completion_tokens)


@pytest.mark.parametrize("choice", CHOICES)
def test_tools_are_offered_and_called_at_once_as_in_a_stream(up, client, tenant, choice):
    asked = {**ASKED, "tools": TOOLS, "tool_choice": CHOICES[choice]}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        streamed = stream.get_final_completion()
    reason, text, calls, (_, output_tokens) = said = said_by(whole)
    assert said_by(streamed) == said
    if choice == "auto":  # such a small model rather tells of the weather than asks for it
        assert (reason, bool(text), calls) == ("stop", True, [])
    else:
        assert (reason, text, [(name, json.loads(given)) for name, given in calls]) == (
            "tool_calls",
            None,
            [("weather_of", {"city": "Oslo"})],
        )
    assert up.records(tenant) == [(one.id, "ok", output_tokens) for one in (whole, streamed)]


# ---- on loan ------------------------------------------------------------------------------------


def rows_of(client, lengths):
    """A batch whose lines run to so many tokens each."""
    lines = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": "smollm2", "prompt": f"{number:02}", "max_tokens": length, "ignore_eos": True},
        }
        for number, length in enumerate(lengths)
    ]
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")


def test_a_request_has_its_place_when_one_of_the_rows_on_loan_ends(up, client):
    """All seats are lent, more rows wait, and of those inside one is short: nothing else ends meanwhile."""
    ended = up.figure("nightmill_engine_rows_total", pool="talk")
    batch = rows_of(client, [SHORT, *[LONG] * (2 * SEATS)])
    until(lambda: up.figure("nightmill_engine_rows", pool="talk", state="running") == SEATS, "a row on each seat")
    stream = client.completions.create(model="smollm2", prompt="Once upon a", max_tokens=4, stream=True)
    assert next(iter(stream)).choices[0].text
    assert up.figure("nightmill_engine_rows_total", pool="talk") == ended + 1
    assert len([*stream]) > 0
    client.batches.cancel(batch.id)
    until(lambda: client.batches.retrieve(batch.id).status == "cancelled", "the batch's end")
