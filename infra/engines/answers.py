"""Answers that are more than one text: put into the form that `EngineResult.answers` has, by either backend."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from infra.engines.backend import at_input
from jobs.ports.engine import EngineResult, FinishReason, Place, RequestProfile

Calls = list[tuple[str, str]]
"""(name, arguments as text) of the functions to call."""
LEAST_LOGPROB = -9999.0
"""OpenAI's word for "never": JSON has no infinity."""
_WORST_FIRST: tuple[FinishReason, ...] = ("abort", "error", "length")
Extract = Callable[[str], tuple[str | None, Calls]]
"""What stands beside the calls in an output, and the calls."""


@dataclass(slots=True, kw_only=True)
class Generated:
    """One answer as an engine gives it. input_tokens, cached_tokens: of the prompt, which several answers share."""

    text: str
    finish_reason: FinishReason
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    tokens: Sequence[Place] | None = None


def generated_row(row: int, answers: Sequence[Sequence[Generated]], extract: Extract | None) -> EngineResult:
    """The result of a row. answers: by input, then by choice. extract: finds calls of tools, None where there are none.

    What one answer found cached because its twin computed it was computed for this row all the same: the least counts
    of those that have begun (an aborted one that has not has no input tokens).
    """
    flat = [answer for choices in answers for answer in choices]
    reasons = [answer.finish_reason for answer in flat]
    reason: FinishReason = next((worst for worst in _WORST_FIRST if worst in reasons), "stop")
    failed = reason == "error"
    return EngineResult(
        row,
        reason,
        flat[0].text,
        None,
        sum([max([answer.input_tokens for answer in choices]) for choices in answers]),
        sum(
            [min([answer.cached_tokens for answer in choices if answer.input_tokens], default=0) for choices in answers]
        ),
        sum([answer.output_tokens for answer in flat]),
        "engine_error" if failed else None,
        "the engine ended one of the answers in error" if failed else None,
        answers=orjson.dumps([_entry(answer, extract) for answer in flat]).decode(),
    )


def _entry(answer: Generated, extract: Extract | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"text": answer.text, "finish_reason": answer.finish_reason}
    if answer.tokens is not None:
        entry["tokens"] = answer.tokens
    if extract is not None:
        text, calls = extract(answer.text)
        if calls:
            entry |= {"text": text, "calls": calls}
    return entry


def embedded_row(row: int, vectors: Sequence[EngineResult]) -> EngineResult:
    """Several inputs of one row, each embedded by itself, as one result; the first that failed stands for all."""
    failed = next((place for place, vector in enumerate(vectors) if vector.embedding is None), None)
    if failed is not None:
        return at_input(vectors[failed], failed, embeds=True)
    texts = [base64.b64encode(array("f", vector.embedding or ()).tobytes()).decode() for vector in vectors]
    return EngineResult(
        row,
        "stop",
        "",
        vectors[0].embedding,
        sum([vector.input_tokens for vector in vectors]),
        sum([vector.cached_tokens for vector in vectors]),
        answers=orjson.dumps(texts).decode(),
    )


def extractor(profile: RequestProfile, parse: Extract | None) -> Extract | None:
    """How calls are found in this profile's outputs. parse: the model's own way of writing them."""
    if profile.tools is None:
        return None
    if profile.tool_choice == "auto":
        return parse
    if profile.tool_choice == "required":
        return _from_list
    return lambda text: (None, [(profile.tool_choice, text)] if _is_object(text) else [])


def _from_list(text: str) -> tuple[str | None, Calls]:
    """Of an output that was held to a list of names and parameters; nothing of one that was cut."""
    try:
        found = orjson.loads(text)
        calls = [(str(call["name"]), orjson.dumps(call["parameters"]).decode()) for call in found]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return text, []
    return None, calls


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def likeliest(entries: Iterable[tuple[str, float]], most: int) -> list[tuple[str, float]]:
    """The first `most`, none below LEAST_LOGPROB."""
    return [(token, max(logprob, LEAST_LOGPROB)) for token, logprob in list(entries)[:most]]
