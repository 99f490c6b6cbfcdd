"""Rows, results and profiles as frames. Columns, not objects: one JSON list per field and chunk."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from infra.engines.frames import Frame
from jobs.ports.engine import (
    EngineInfo,
    EnginePiece,
    EngineRequest,
    EngineResult,
    Occupancy,
    Place,
    Prompt,
    RequestProfile,
    Several,
)

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
        EngineRequest(row, prompt if isinstance(prompt, str) else _prompt(prompt))
        for row, prompt in zip(head["ids"], head["prompts"], strict=True)
    ]


def prompt_from_wire(prompt: Any) -> Prompt:
    """One of them, as JSON has it."""
    return prompt if isinstance(prompt, str) else _prompt(prompt)


def _prompt(prompt: Any) -> Prompt:
    """From lists to tuples; a frame shows `Several` as an object."""
    if isinstance(prompt, dict):
        return Several(tuple([entry if isinstance(entry, str) else tuple(entry) for entry in prompt["inputs"]]))
    if isinstance(prompt[0], int):
        return tuple(prompt)
    return tuple([tuple(message) for message in prompt])


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
    answers = {str(i): r.answers for i, r in enumerate(results) if r.answers is not None}
    if answers:
        head["answers"] = answers
    if all(r.embedding is None for r in results):
        return head, b""
    vectors = [array("f", r.embedding if r.embedding is not None else ()) for r in results]
    head["dims"] = [len(v) for v in vectors]
    return head, b"".join([v.tobytes() for v in vectors])


def results_from_wire(head: dict[str, Any], tail: bytes) -> list[EngineResult]:
    """The inverse of `results_to_wire`; an embedding comes back as `array('f')`."""
    columns = zip(head["ids"], head["finish"], head["text"], head["in"], head["cached"], head["out"], strict=True)
    if not head.keys() & {"errors", "dims", "answers"}:
        return [EngineResult(row, finish, text, None, i, c, o) for row, finish, text, i, c, o in columns]
    vectors = _vectors(head.get("dims", ()), tail)
    errors, answers = head.get("errors", {}), head.get("answers", {})
    results = []
    for n, (row, finish, text, i, c, o) in enumerate(columns):
        code, message = errors.get(str(n), (None, None))
        vector = vectors[n] if vectors else None
        results.append(EngineResult(row, finish, text, vector, i, c, o, code, message, answers.get(str(n))))
    return results


def pieces_to_wire(pieces: Sequence[EnginePiece], moved: int) -> dict[str, Any]:
    """Pieces of rows, in order. `moved`: the token counter so far."""
    head: dict[str, Any] = {
        "op": "pieces",
        "moved": moved,
        "ids": [p.id for p in pieces],
        "choice": [p.choice for p in pieces],
        "text": [p.text for p in pieces],
        "out": [p.output_tokens for p in pieces],
    }
    tokens = {str(i): p.tokens for i, p in enumerate(pieces) if p.tokens is not None}
    return {**head, "tokens": tokens} if tokens else head


def pieces_from_wire(head: dict[str, Any]) -> list[EnginePiece]:
    """The inverse of `pieces_to_wire`."""
    columns = zip(head["ids"], head["choice"], head["text"], head["out"], strict=True)
    if "tokens" not in head:
        return [EnginePiece(row, choice, text, out) for row, choice, text, out in columns]
    tokens = head["tokens"]
    return [
        EnginePiece(row, choice, text, out, _places(tokens.get(str(n))))
        for n, (row, choice, text, out) in enumerate(columns)
    ]


def _places(places: Any) -> list[Place] | None:
    if places is None:
        return None
    return [(token, logprob, [tuple(other) for other in others]) for token, logprob, others in places]


def _vectors(dims: Sequence[int], tail: bytes) -> list[array[float] | None]:
    vectors: list[array[float] | None] = []
    at = 0
    for size in dims:
        end = at + size * FLOAT_BYTES
        vectors.append(array("f", tail[at:end]) if size else None)
        at = end
    return vectors


def progress_to_wire(moved: int, occupancy: Occupancy) -> dict[str, Any]:
    """The sign of life."""
    return {"op": "progress", "moved": moved, "occupancy": asdict(occupancy)}


def occupancy_from_wire(head: dict[str, Any]) -> Occupancy:
    """What `progress_to_wire` was told."""
    return Occupancy(**head["occupancy"])


def info_to_wire(info: EngineInfo) -> dict[str, Any]:
    """The frame that says: ready."""
    return {"op": "ready", "info": asdict(info)}


def info_from_wire(head: dict[str, Any], start_s: float) -> EngineInfo:
    """The inverse of `info_to_wire`, with the start time as the caller saw it."""
    return EngineInfo(**{**head["info"], "start_s": start_s})


def without_surrogates(text: str) -> str:
    """The text with everything that cannot be UTF-8 replaced by `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")
