"""Lines that nobody meant: each is taken whole or refused by the field, whatever stands in it; none stops the reader.

Seeded. NIGHTMILL_FUZZ_CASES sets how many; a line that breaks it belongs into odd_lines.jsonl.
"""

from __future__ import annotations

import json
import os
import random
from copy import deepcopy
from pathlib import Path

import orjson
import pytest

from infra.data.bodies import BadBody, Rules
from infra.data.endpoints import ENDPOINTS, outline
from infra.data.line_fields import CARRIED, MENDS, WITHOUT_EFFECT
from infra.data.lines import Faults, LineReader
from infra.engines import wire
from jobs.errors import BadInput
from jobs.ports.engine import EngineRequest
from jobs.prompts import plain_text
from tests.property.odd_lines import odd_lines
from tests.support.lines import BODIES, TOOL, USER, WEATHER, a_line

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]
CASES = int(os.environ.get("NIGHTMILL_FUZZ_CASES", "20000"))
WARM = 4000
GROWTH_BYTES = 48 << 20
WHOLE_LINE = {"invalid_json_line", "line_too_long"}

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
CALLS = [{"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]
SEEDS = [
    *(a_line(url) for url in BODIES),
    a_line("/v1/chat/completions", n=2, logprobs=True, top_logprobs=3, stop=["a"], seed=1, logit_bias={"5": -1}),
    a_line("/v1/chat/completions", response_format=FORMAT, chat_template_kwargs={"a": True}, metadata={"a": "b"}),
    a_line("/v1/chat/completions", tools=[TOOL], tool_choice="required", parallel_tool_calls=False),
    a_line(
        "/v1/chat/completions",
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        messages=[
            *USER,
            {"role": "assistant", "content": None, "tool_calls": CALLS},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "rain"}]},
        ],
    ),
    a_line("/v1/completions", prompt=[[1, 2], "b"], logprobs=2, n=2, max_tokens=5, best_of=1),
    a_line("/v1/embeddings", input=["a", [1]], dimensions=3, encoding_format="base64"),
    a_line("/v1/responses", instructions="be", metadata={"a": "b"}, tools=[{"type": "function", **WEATHER}]),
    a_line("/v1/responses", text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}, top_p=0.5),
    a_line(
        "/v1/responses",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ],
    ),
]
WORDS = sorted({*WITHOUT_EFFECT["/v1/chat/completions"], *MENDS}.union(*CARRIED.values()))
TEXTS = ["", " ", "\x00", "a" * 600, "é東🙂", "\u2028", "#", "#/a/~2", "(a{999}){999}", "((((", "NaN", "system", "none"]
ODD = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**64 - 1, 1e308, -0.0, 1e-320, 0.5, [], {}, [[]], [{}], ""),
    *TEXTS,
    *([None], [0], [1, "a"], ["a"] * 70, [-1], [True], [[1], []], {"": 1}, {"type": "function"}, {"type": []}),
    *({"$ref": "#"}, {"anyOf": [{"$ref": "#"}]}, {"type": "text", "text": 5}, {"type": "json_schema"}, {"enum": []}),
    *(
        {"pattern": "("},
        {"properties": []},
        {"required": [1]},
        {"items": {"items": {"items": {}}}},
        {"$id": "http://x"},
    ),
    *([{"role": "user"}], [{"role": [], "content": {}}], [{"role": "tool", "tool_call_id": {}, "content": "x"}]),
]


def places(node, path=()):
    """Where something stands in a JSON document."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def changed(chance: random.Random, document):
    """One thing in it is another, gone, twice, deeper, or new."""
    path = chance.choice(list(places(document))[1:] or [()])
    if not path:
        return deepcopy(chance.choice(ODD))
    *way, last = path
    node = document
    for key in way:
        node = node[key]
    match chance.randrange(6):
        case 0:
            del node[last]
        case 1 if isinstance(node, dict):
            node[chance.choice(WORDS)] = node[last]
        case 2:
            for _ in range(chance.choice([1, 2, 70])):
                node[last] = [node[last]] if chance.random() < 0.5 else {"items": node[last]}
        case 3 if isinstance(node, dict):
            node[chance.choice([*WORDS, *TEXTS])] = deepcopy(chance.choice(ODD))
        case 4 if isinstance(node, list):
            node *= chance.choice([2, 40])
        case _:
            node[last] = deepcopy(chance.choice(ODD))
    return document


def damaged(chance: random.Random, line: bytes) -> bytes:
    """Some bytes of it are others, gone, or there again."""
    data = bytearray(line)
    for _ in range(chance.choice([1, 1, 2, 8])):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + chance.randrange(1, 20)]
            case 2:
                data[at:at] = data[at : at + chance.randrange(1, 60)]
            case _:
                data[at:at] = chance.choice([b"\\ud800", b"\xff", b"[" * 300, b"1e999", b"-", b'"', b"\\u0000", b"{}"])
    return bytes(data)


def case(chance: random.Random, kept: list[bytes]) -> bytes:
    kind = chance.randrange(10)
    if kind == 0:
        return damaged(chance, chance.choice(kept))
    document = orjson.loads(orjson.dumps(chance.choice(SEEDS)))
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        if isinstance(document, dict | list):
            document = changed(chance, document)
    line = json.dumps(document).encode()
    return damaged(chance, line) if kind < 3 else line


def look(line: bytes) -> str:
    """What became of it: taken and understood the same by everybody after the reader, or refused with its place."""
    reader = LineReader(Rules(no_tools="" if len(line) % 3 else "because"))
    try:
        custom_id, body = reader.read(line)
    except BadBody as fault:
        faults = Faults("file")
        faults.add(7, fault)
        with pytest.raises(BadInput) as caught:
            faults.check()
        (error,) = caught.value.lines
        assert (error.line, bool(error.code), 0 < len(error.message) <= 501) == (7, True, True)
        assert error.param is not None or error.code in WHOLE_LINE, f"no field: {error}"
        return error.code
    assert custom_id
    assert reader.rules.endpoint in ENDPOINTS
    requests = [EngineRequest(1, body.prompt)]
    assert wire.requests_from_wire(orjson.loads(orjson.dumps(wire.requests_to_wire("k", requests)))) == requests
    assert outline(orjson.loads(line)["body"], reader.rules.endpoint).answers >= 1
    assert isinstance(plain_text(body.prompt), str)
    return "taken"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_every_odd_line_is_taken_or_refused_by_the_field():
    chance, kept = random.Random(20261129), odd_lines()
    ends = {look(line) for line in kept}
    for _ in range(min(WARM, CASES)):
        ends.add(look(case(chance, kept)))
    before = resident()
    for _ in range(CASES - WARM):
        ends.add(look(case(chance, kept)))
    assert resident() - before < GROWTH_BYTES
    assert {"taken", "invalid_json_line", "invalid_url", "unsupported_parameter", "invalid_request"} <= ends
