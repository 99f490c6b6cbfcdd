"""From engine results to the columns that say what became of each row."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jsonschema_rs
import orjson
import pyarrow as pa

from infra.data.answers import answer_of, calls_fit, texts_of
from infra.data.guided import validator
from infra.data.schema import ANSWER
from infra.data.typed import TypedColumn
from jobs.model import Job, Outcome, Usage
from jobs.outcomes import of_result
from jobs.ports.engine import EngineResult, Prompt, RequestProfile
from jobs.ports.rows import OpenRows, RowFault
from jobs.pricing import amount


class Hasher:
    """request_hash: 128 bits over model checksum, rendered request, sampling and schema; the same wherever it is made.

    What all rows share is hashed once; a row pays for a copy of that state and for its own text.
    """

    def __init__(self, job: Job, profiles: Sequence[RequestProfile]) -> None:
        self._starts = [self._start(job, profile) for profile in profiles]

    @staticmethod
    def _start(job: Job, profile: RequestProfile) -> Any:
        shared = [job.spec.model_checksum, profile.kind, profile.sampling, profile.schema, profile.dimensions]
        shared += [] if profile.tools is None else [profile.tools, profile.tool_choice]
        return hashlib.blake2b(orjson.dumps(shared), digest_size=16)

    def of(self, profile: int, prompt: Prompt) -> str:
        state = self._starts[profile].copy()
        state.update(orjson.dumps(prompt))
        return state.hexdigest()  # type: ignore[no-any-return]  # the state is hashlib's


@lru_cache(maxsize=256)
def _validator_of(schema_text: str | None) -> jsonschema_rs.Validator | None:
    return None if schema_text is None else validator(orjson.loads(schema_text))


class Checker:
    """Parses outputs and holds them against the schema of their profile."""

    def __init__(self, profiles: Sequence[RequestProfile], columns: Sequence[TypedColumn]) -> None:
        self._validators = [_validator_of(profile.schema) for profile in profiles]
        self._profiles = profiles
        self._columns = columns
        self._values: list[list[Any]] = [[] for _ in columns]

    def take(self, text: str | None, profile: int = 0) -> bool:
        """Note the typed values of one row (null where it does not parse); whether it keeps to the schema."""
        checks = self._validators[profile]
        if checks is None:
            return True
        parsed: Any = None
        fits = False
        if text is not None:
            try:
                parsed = orjson.loads(text)
                fits = checks.is_valid(parsed)
            except (orjson.JSONDecodeError, ValueError):
                parsed = None
        for column, values in zip(self._columns, self._values, strict=True):
            values.append(column.shape.fit(parsed.get(column.property)) if isinstance(parsed, dict) else None)
        return fits

    def others_fit(self, result: EngineResult, profile: int) -> bool:
        """Whether all answers of a row that has several, or calls tools, keep to what they must keep to."""
        if (tools := self._profiles[profile].tools) is not None:
            return calls_fit(result, tools)
        return all(self.take(text, profile) for text in texts_of(result)[1:])

    def arrays(self) -> list[pa.Array]:
        return [pa.array(v, c.shape.kind) for c, v in zip(self._columns, self._values, strict=True)]


@dataclass(slots=True, kw_only=True)
class Columns:
    """The result columns of a part while they grow, row by row. places: which rows of the task are in it.

    answers: by place, of the few rows that have one.
    """

    places: list[int] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    codes: list[str | None] = field(default_factory=list)
    messages: list[str | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)
    hashes: list[str | None] = field(default_factory=list)
    answers: dict[int, str] = field(default_factory=dict)

    def add(
        self,
        place: int,
        outcome: Outcome,
        code: str | None,
        message: str | None,
        request: str | None,
        *,
        output: Any = None,
    ) -> None:
        self.places.append(place)
        self.outputs.append(output)
        self.outcomes.append(outcome.value)
        self.codes.append(code)
        self.messages.append(message)
        self.hashes.append(request)

    def spent(self, reason: str | None, inputs: int, cached: int, generated: int) -> None:
        self.reasons.append(reason)
        self.inputs.append(inputs)
        self.cached.append(cached)
        self.generated.append(generated)

    def usage(self) -> Usage:
        """Token classes apart: what came from the cache is not in `input_tokens`."""
        cached = sum(self.cached)
        return Usage(
            rows=len(self.places),
            input_tokens=sum(self.inputs) - cached,
            cached_tokens=cached,
            output_tokens=sum(self.generated),
            outcomes=dict(Counter(self.outcomes)),
        )

    def arrays(self, job: Job) -> dict[str, pa.Array]:
        """All but `output`."""
        price = job.price
        amounts = [
            amount(price, input_tokens=i - c, cached_tokens=c, output_tokens=o)
            for i, c, o in zip(self.inputs, self.cached, self.generated, strict=True)
        ]
        text, number = pa.string(), pa.int64()
        nothing = pa.nulls(len(self.places), text)
        return {
            "outcome": pa.array(self.outcomes, text),
            "error_code": pa.array(self.codes, text),
            "error_message": pa.array(self.messages, text),
            "finish_reason": pa.array(self.reasons, text),
            "input_tokens": pa.array(self.inputs, number),
            "cached_tokens": pa.array(self.cached, number),
            "output_tokens": pa.array(self.generated, number),
            "amount_pico": pa.array(amounts, number),
            "request_hash": pa.array(self.hashes, text),
            ANSWER: pa.array([self.answers.get(place) for place in self.places], text) if self.answers else nothing,
        }


def settle(
    job: Job,
    rows: OpenRows,
    results: Sequence[EngineResult | None],
    checker: Checker,
    *,
    unfinished: Outcome | None,
    embedding_size: int | None,
) -> Columns:
    """Every row of the task that is finished, in the task's order; see `PartSink.write`.

    embedding_size: of rows that ask for no size of their own, 0 if that is not known; None for generated text.
    """
    columns = Columns()
    hasher = Hasher(job, rows.profiles)
    of = rows.profile_of
    for place, result in enumerate(results):
        fault = rows.faults.get(place)
        prompt = rows.prompts[place]
        if fault is not None or prompt is None:
            _settle_fault(columns, place, fault or RowFault("input_unreadable", "the row has no prompt"), checker)
            continue
        if (result is None or result.finish_reason == "abort") and unfinished is None:
            continue  # comes back in a child task
        profile = of[place] if of is not None else 0
        request = hasher.of(profile, prompt)
        if result is None:
            assert unfinished is not None
            checker.take(None)
            columns.add(place, unfinished, None, None, request)
            columns.spent(None, 0, 0, 0)
        else:
            output: Any = result.text if result.finish_reason != "error" or result.text else None
            fits = checker.take(output, profile)
            size = embedding_size
            if size is not None:
                size = rows.profiles[profile].dimensions or size
            elif result.answers is not None:
                fits = fits and checker.others_fit(result, profile)
            _settle_result(columns, place, result, request, output, unfinished, size, fits=fits)
            if (answer := answer_of(result, rows.echoes.get(place), embeds=size is not None)) is not None:
                columns.answers[place] = answer
    return columns


def _settle_fault(columns: Columns, place: int, fault: RowFault, checker: Checker) -> None:
    checker.take(None)
    columns.add(place, Outcome.ERROR, fault.code, fault.message, None)
    columns.spent(None, 0, 0, 0)


def _settle_result(
    columns: Columns,
    place: int,
    result: EngineResult,
    request: str,
    output: Any,
    unfinished: Outcome | None,
    embedding_size: int | None,
    *,
    fits: bool,
) -> None:
    reason = result.finish_reason
    message = result.error_message
    outcome, code = of_result(reason, result.error_code, fits_schema=fits, ending=unfinished)
    if embedding_size is not None:
        output = result.embedding
        if outcome is Outcome.OK and (output is None or (embedding_size and len(output) != embedding_size)):
            got = 0 if output is None else len(output)
            outcome, code, output = Outcome.ERROR, "engine_error", None
            message = f"the embedding has {got} numbers instead of {embedding_size}"
    elif outcome is Outcome.ERROR and not fits and reason == "stop":
        message = "the output does not keep to the schema"
    columns.add(place, outcome, code, message, request, output=output)
    columns.spent(reason, result.input_tokens, result.cached_tokens, result.output_tokens)


def output_array(outputs: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Texts, or embeddings as one flat float32 buffer."""
    if pa.types.is_list(kind):
        return pa.array([None if output is None else list(output) for output in outputs], kind)
    if not pa.types.is_fixed_size_list(kind):
        return pa.array(outputs, kind)
    size = kind.list_size
    flat = array("f")
    blank = array("f", bytes(4 * size))
    for output in outputs:
        flat.extend(blank if output is None else output)
    values = pa.Array.from_buffers(pa.float32(), len(flat), [None, pa.py_buffer(flat)])
    missing = [output is None for output in outputs]
    mask = pa.array(missing) if any(missing) else None
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)


def void_columns(size: int, outcome: Outcome, code: str | None, message: str | None) -> Columns:
    """Rows that never reached an engine, all with one end."""
    columns = Columns()
    for place in range(size):
        columns.add(place, outcome, code, message, None)
        columns.spent(None, 0, 0, 0)
    return columns


def empty_typed(columns: Sequence[TypedColumn], size: int) -> Mapping[str, pa.Array]:
    """Typed columns of rows without output."""
    return {column.column: pa.nulls(size, column.shape.kind) for column in columns}
