"""Rows, results and profiles as frames. Columns, not objects: one JSON list per field and chunk."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from infra.engines.frames import Frame
from jobs.ports.engine import EngineInfo, EngineRequest, EngineResult, RequestProfile

FLOAT_BYTES = 4


def profile_to_wire(profile: RequestProfile) -> dict[str, Any]:
    """The frame that makes a profile known, before the first rows that refer to it."""
    return {"op": "profile", "profile": asdict(profile)}


def profile_from_wire(head: dict[str, Any]) -> RequestProfile:
    """The inverse of `profile_to_wire`."""
    return RequestProfile(**head["profile"])


def requests_to_wire(key: str, requests: Sequence[EngineRequest]) -> dict[str, Any]:
    """A chunk of rows under the profile `key`."""
    return {"op": "submit", "key": key, "ids": [r.id for r in requests], "prompts": [r.prompt for r in requests]}


def requests_from_wire(head: dict[str, Any]) -> list[EngineRequest]:
    """The inverse of `requests_to_wire`."""
    return [
        EngineRequest(row, prompt if isinstance(prompt, str) else tuple([(role, text) for role, text in prompt]))
        for row, prompt in zip(head["ids"], head["prompts"], strict=True)
    ]


def results_to_wire(results: Sequence[EngineResult], moved: int) -> Frame:
    """Finished rows; embeddings as float32 in the tail, in row order. `moved`: the token counter so far."""
    head: dict[str, Any] = {
        "op": "results",
        "moved": moved,
        "ids": [r.id for r in results],
        "finish": [r.finish_reason for r in results],
        "text": [r.text for r in results],
        "in": [r.input_tokens for r in results],
        "cached": [r.cached_tokens for r in results],
        "out": [r.output_tokens for r in results],
    }
    errors = {str(i): (r.error_code, r.error_message) for i, r in enumerate(results) if r.error_code}
    if errors:
        head["errors"] = errors
    if all(r.embedding is None for r in results):
        return head, b""
    vectors = [array("f", r.embedding if r.embedding is not None else ()) for r in results]
    head["dims"] = [len(v) for v in vectors]
    return head, b"".join([v.tobytes() for v in vectors])


def results_from_wire(head: dict[str, Any], tail: bytes) -> list[EngineResult]:
    """The inverse of `results_to_wire`; an embedding comes back as `array('f')`."""
    columns = zip(head["ids"], head["finish"], head["text"], head["in"], head["cached"], head["out"], strict=True)
    if "errors" not in head and "dims" not in head:
        return [EngineResult(row, finish, text, None, i, c, o) for row, finish, text, i, c, o in columns]
    vectors = _vectors(head.get("dims", ()), tail)
    errors = head.get("errors", {})
    return [
        EngineResult(row, finish, text, vectors[n] if vectors else None, i, c, o, *errors.get(str(n), (None, None)))
        for n, (row, finish, text, i, c, o) in enumerate(columns)
    ]


def _vectors(dims: Sequence[int], tail: bytes) -> list[array[float] | None]:
    vectors: list[array[float] | None] = []
    at = 0
    for size in dims:
        end = at + size * FLOAT_BYTES
        vectors.append(array("f", tail[at:end]) if size else None)
        at = end
    return vectors


def info_to_wire(info: EngineInfo) -> dict[str, Any]:
    """The frame that says: ready."""
    return {"op": "ready", "info": asdict(info)}


def info_from_wire(head: dict[str, Any], start_s: float) -> EngineInfo:
    """The inverse of `info_to_wire`, with the start time as the caller saw it."""
    return EngineInfo(**{**head["info"], "start_s": start_s})


def without_surrogates(text: str) -> str:
    """The text with everything that cannot be UTF-8 replaced by `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")
