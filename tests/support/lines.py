"""Batch lines of every endpoint through a job's whole data side, answered by the fake engine's own clockwork."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from infra.engines.fake_answers import answer_row, flavour_of
from infra.engines.fake_args import FakeArgs
from jobs.model import Job
from jobs.ports.engine import EngineRequest, EngineResult, RequestProfile
from jobs.prompts import plain_text
from tests.support.data import Kit

Answered = Callable[[EngineRequest, RequestProfile], EngineResult]
ARGS = FakeArgs(tool_call_parser="fake", call_on="weather", embedding_size=4)
USER = [{"role": "user", "content": "hello there"}]
WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 5}, "days": {"type": "integer", "maximum": 3}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
TOOL = {"type": "function", "function": WEATHER}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "Once upon a time"},
    "/v1/embeddings": {"input": "a text"},
    "/v1/responses": {"input": "hello there"},
}
"""The least that a line of each endpoint says."""


def a_line(url: str, custom_id: str = "a", **body: Any) -> dict[str, Any]:
    body = {"model": "fake", **BODIES[url], **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def job_of(kit: Kit, url: str, *bodies: dict[str, Any], **spec: Any) -> Job:
    """A new one, of lines r0, r1, …"""
    number = len(kit.files) + 1
    lines = [orjson.dumps(a_line(url, f"r{n}", **body)) for n, body in enumerate(bodies)]
    path = kit.write(f"in{number}.jsonl", b"\n".join(lines))
    if url == "/v1/embeddings":
        spec = {"model_kind": "embedding", "embedding_size": 4, **spec}
    return kit.submit(path, f"job{number}", **{"sampling": "{}", **spec})


def settled(kit: Kit, job: Job, answer: Answered | None = None) -> None:
    """All of its rows, answered by the fake engine or as the test says."""
    side, parts = kit.side(), []
    for task in kit.plan(job, side=side):
        rows = side.source.open(job, task)
        results = [
            None if prompt is None else (answer or faked)(EngineRequest(place, prompt), rows.profile(place))
            for place, prompt in enumerate(rows.prompts)
        ]
        parts.append(side.sink.write(job, task.evolve(token="tok"), rows, results, unfinished=None).part)
    kit.parts[job.id] = [part for part in parts if part is not None]


def faked(request: EngineRequest, profile: RequestProfile) -> EngineResult:
    return answer_row(request, plain_text(request.prompt), flavour_of(profile), ARGS)


def answered(
    kit: Kit, url: str, *bodies: dict[str, Any], answer: Answered | None = None, **spec: Any
) -> list[dict[str, Any]]:
    """The lines of the output and the error file, in the input's order."""
    job = job_of(kit, url, *bodies, **spec)
    settled(kit, job, answer)
    found = [orjson.loads(line) for line in kit.results().jsonl(job)]
    return sorted(found, key=lambda line: line["custom_id"])


def bodies_of(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line["response"]["body"] for line in lines]
