"""Interactive bodies, read and written by what reads and writes the lines of a batch."""

import orjson
import pytest

from infra.data.bodies import Rules
from infra.data.endpoints import read_body
from infra.data.line_rules import ModelFacts
from infra.data.live_reading import BodyReading
from infra.data.openai_lines import line_of
from infra.data.profiles import profile_of
from jobs.model import Model, Price, Priority
from jobs.pools import Pool
from jobs.ports.engine import EngineResult
from jobs.ports.reading import Asking, BadRequest, ContextExceeded, UnsupportedParameter
from jobs.requests import URGENT, Piece
from tests.factories import a_job

pytestmark = pytest.mark.unit
SECRET = bytes(32)
PRICE = Price(version="1", model="m", currency="USD", input_micro=1, cached_micro=1, output_micro=1)
CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
HELLO = [{"role": "user", "content": "Hello, you."}]


def reading(kind="chat", context=100, parser="hermes"):
    model = Model(name="m", kind=kind, path="", engine="vllm", engine_args={"tool_call_parser": parser})
    facts = ModelFacts(embedding_size=lambda _: 4, sizes=lambda _: (2, 4), shows_tools=lambda _: True)
    return BodyReading(
        find=lambda _: model, context=lambda _: context, facts=facts, secret=lambda: SECRET, tokens_per_char=0.25
    )


def read(body, endpoint=CHAT, *, kind="chat", **options):
    found = reading(kind, **options)
    asking = Asking(
        id="chatcmpl-1",
        tenant="acme",
        creator="key_1",
        endpoint=endpoint,
        asked_model="alias",
        served=found.served(Pool(name="p", model="m")),
        price=PRICE,
        created=7.9,
    )
    return found.read(asking, {"model": "alias", **body})


def events(raw):
    return [orjson.loads(event.removeprefix(b"data: ")) for event in raw.split(b"\n\n") if event.startswith(b"data: {")]


def test_the_engine_is_asked_as_for_a_batchs_line_only_sooner():
    body = {"messages": HELLO, "max_completion_tokens": 9, "temperature": 0.5, "seed": 3}
    live = read(body).request
    job = a_job(tenant="acme", priority=Priority.NORMAL)
    job = job.evolve(spec=job.spec.evolve(endpoint=CHAT, sampling="{}", schema=None))
    row = profile_of(job, live.profile.cache_salt, read_body({"model": "alias", **body}, Rules(endpoint=CHAT)))
    mine = {name: getattr(live.profile, name) for name in live.profile.__slots__ if name not in {"key", "priority"}}
    theirs = {name: getattr(row, name) for name in row.__slots__ if name not in {"key", "priority"}}
    assert (mine, live.profile.priority) == (theirs, URGENT)


@pytest.mark.parametrize(
    ("body", "endpoint", "estimated"),
    [
        ({"messages": HELLO, "max_tokens": 9, "n": 3}, CHAT, (11, 27, 3)),
        ({"messages": HELLO}, CHAT, (11, 89, 1)),
        ({"messages": [{"role": "user", "content": "x" * 4000}]}, CHAT, (100, 1, 1)),
        ({"prompt": ["one two three", "four"], "max_tokens": 5, "n": 2}, TEXT, (4, 20, 4)),
    ],
)
def test_tokens_are_estimated_from_characters_and_what_the_context_leaves(body, endpoint, estimated):
    found = read(body, endpoint).request
    assert (found.input_tokens, found.output_tokens, found.seats) == estimated


def test_an_embedding_generates_nothing_and_has_a_seat_for_each_input():
    found = read({"input": ["one", "two"], "dimensions": 2}, EMBED, kind="embedding").request
    assert (found.output_tokens, found.seats, found.profile.dimensions) == (0, 2, 2)


def test_pieces_are_not_wanted_where_tools_may_be_called():
    tool = {"type": "function", "function": {"name": "f"}}
    asked = [read({"messages": HELLO, "stream": True, **more}) for more in ({}, {"tools": [tool]})]
    assert [(one.stream, one.request.profile.stream) for one in asked] == [(True, True), (True, False)]


def test_a_refusal_names_the_field_as_the_body_has_it():
    with pytest.raises(UnsupportedParameter, match="did you mean") as caught:
        read({"messages": HELLO, "max_token": 3})
    assert caught.value.param == "max_token"


def test_token_ids_beyond_the_context_are_refused_by_their_place():
    with pytest.raises(ContextExceeded) as caught:
        read({"input": [[1], [2] * 101]}, EMBED, kind="embedding")
    assert caught.value.param == "input[1]"


# ---- written ------------------------------------------------------------------------------------


def test_a_whole_answer_is_that_of_a_line_but_for_its_ids():
    entries = [{"text": "Hi", "finish_reason": "stop", "tokens": [["Hi", -0.5, [["Hi", -0.5]]]]}]
    result = EngineResult(1, "stop", "Hi", None, 5, 2, 1, answers=orjson.dumps(entries).decode())
    live = orjson.loads(read({"messages": HELLO, "logprobs": True}).writer.whole(result))
    job = a_job(tenant="acme")
    job = job.evolve(spec=job.spec.evolve(endpoint=CHAT, asked_model="alias"))
    row = {
        "row": 0,
        "custom_id": "a",
        "outcome": "ok",
        "output": "Hi",
        "finish_reason": "stop",
        "input_tokens": 5,
        "cached_tokens": 2,
        "output_tokens": 1,
        "answer": orjson.dumps({"choices": entries}).decode(),
    }
    line = orjson.loads(line_of(job, row, 7))["response"]["body"]
    assert live.pop("id") == "chatcmpl-1"
    assert live == {name: value for name, value in line.items() if name != "id"}


def test_neighbouring_pieces_of_an_answer_are_one_chunk_and_offsets_go_on():
    writer = read({"prompt": ["a", "b"], "stream": True, "logprobs": 0}, TEXT).writer
    places = [[("x", -1.0, [])], [("y", -1.0, [])], [("z", -1.0, [])]]
    first = events(writer.more([Piece(0, "x", 1, places[0]), Piece(0, "y", 1, places[1]), Piece(1, "z", 1, places[2])]))
    second = events(writer.more([Piece(0, "z", 1, places[2])]))
    told = [(c["index"], c["text"], c["logprobs"]["text_offset"]) for e in first + second for c in e["choices"]]
    assert told == [(0, "xy", [0, 1]), (1, "z", [0]), (0, "z", [2])]


def test_an_empty_piece_makes_no_event():
    assert read({"messages": HELLO, "stream": True}).writer.more([Piece(0, "", 1)]) == b""


def test_the_end_of_a_stream_says_what_no_piece_said_then_why_then_the_usage():
    writer = read({"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}).writer
    raw = writer.end(EngineResult(1, "length", "All of it.", None, 5, 0, 4))
    said = events(raw)
    deltas = [(e["choices"][0]["delta"], e["choices"][0]["finish_reason"]) for e in said if e["choices"]]
    assert deltas == [({"content": "All of it."}, None), ({}, "length")]
    assert said[-1]["usage"]["total_tokens"] == 9
    assert raw.endswith(b"data: [DONE]\n\n")


def test_more_logprobs_than_can_be_told_at_once_are_refused():
    with pytest.raises(BadRequest, match=r"up to 32,768 tokens come to 688,128; at most 524,288 are told at once"):
        read({"messages": HELLO, "n": 32, "max_tokens": 1024, "logprobs": True, "top_logprobs": 20}, context=4096)
    assert read({"messages": HELLO, "n": 16, "max_tokens": 1024, "logprobs": True, "top_logprobs": 20}, context=4096)


def test_a_schema_that_is_nested_deeper_than_json_can_be_written_is_a_bad_request():
    schema = {"type": "object"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    asked = {"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}
    with pytest.raises(BadRequest, match="cannot be written as JSON: Recursion limit reached"):
        read({"messages": HELLO, "response_format": asked})
