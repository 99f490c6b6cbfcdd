"""The `answer` column: what of a row's answer does not fit into `output`, as JSON, and its way into an answer line.

An object with what there is of: `choices`, all generated answers, by input and then by choice, each as
`jobs.ports.engine.EngineResult.answers` has it; `embeddings`, all vectors of a line with several inputs, as base64 of
float32; `echo`, what the answer repeats of the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jsonschema_rs
import orjson

from infra.data.guided import validator
from infra.data.tool_bodies import strict_schemas
from jobs.ports.engine import EngineResult


@dataclass(frozen=True, slots=True)
class Answer:
    """A row's `answer`, read; empty for a row without."""

    choices: Sequence[Mapping[str, Any]] = ()
    embeddings: Sequence[str] = ()
    echo: Mapping[str, Any] = field(default_factory=dict)


NO_MORE = Answer()


def answer_of(result: EngineResult, echo: Mapping[str, Any] | None, *, embeds: bool) -> str | None:
    """What is written into the column; None for nothing. echo: of the request."""
    if result.answers is None and echo is None:
        return None
    found: dict[str, Any] = {}
    if result.answers is not None:
        found["embeddings" if embeds else "choices"] = orjson.Fragment(result.answers)
    if echo is not None:
        found["echo"] = echo
    return orjson.dumps(found).decode()


def read_answer(text: str | None) -> Answer:
    """The way back."""
    return NO_MORE if text is None else Answer(**orjson.loads(text))


def texts_of(result: EngineResult) -> list[str | None]:
    """All generated texts of a row; None for those that call tools."""
    if result.answers is None:
        return [result.text]
    return [None if entry.get("calls") else entry["text"] for entry in orjson.loads(result.answers)]


def calls_fit(result: EngineResult, tools: str) -> bool:
    """Whether the calls of functions that are strict keep to their parameters."""
    validators = _strict(tools)
    if not validators or result.answers is None:
        return True
    calls = [call for entry in orjson.loads(result.answers) for call in entry.get("calls", ())]
    return all(_fits(validators[name], arguments) for name, arguments in calls if name in validators)


@lru_cache(maxsize=64)
def _strict(tools: str) -> dict[str, jsonschema_rs.Validator]:
    return {name: validator(schema) for name, schema in strict_schemas(tools).items()}


def _fits(checks: jsonschema_rs.Validator, arguments: str) -> bool:
    try:
        return checks.is_valid(orjson.loads(arguments))
    except (orjson.JSONDecodeError, ValueError):
        return False
