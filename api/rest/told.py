"""What became of an interactive request that has no answer, as the error that its client is told."""

from __future__ import annotations

import math
import re

from jobs.errors import Broken, Interrupted, NightmillError, Overloaded, Unserved
from jobs.ports.engine import EngineResult
from jobs.ports.reading import BadRequest, ContextExceeded
from jobs.requests import End, Ended, LiveRequest

_INPUT = re.compile(r"(?:input|prompt)\[\d+\](?=: )")


def fault_of(ended: Ended, request: LiveRequest, output_tokens: int) -> NightmillError | None:
    """None where there is an answer. output_tokens: told so far."""
    if ended.end is End.REFUSED:
        if ended.retry_after_s is None:
            return Unserved(model=request.asked_model, reason=ended.reason)
        after_s = max(0.001, ended.retry_after_s)
        return Overloaded(model=request.asked_model, retry_after_s=math.ceil(after_s), exactly_s=after_s)
    if ended.end is End.LOST:
        lost = interrupted(output_tokens, "its worker was lost, and nothing is charged", ended.reason)
        lost.data |= {} if ended.retry_after_s is None else {"exactly_s": max(0.001, ended.retry_after_s)}
        return lost
    if ended.end is End.ABORTED:
        generated = max(output_tokens, ended.usage.output_tokens)
        return interrupted(generated, "its worker had to stop, and what was generated is charged", ended.reason)
    if ended.result is None:
        return Broken(reason="a request is done and has no result")
    return _fault_of_result(ended.result) if ended.result.finish_reason in {"error", "abort"} else None


def _fault_of_result(result: EngineResult) -> NightmillError:
    words = (result.error_message or "it cannot be done").rstrip(".")
    named = _INPUT.match(words)
    param = {"param": named[0]} if named else {}
    if result.error_code == ContextExceeded.code:
        return ContextExceeded(reason=words, **param)
    if result.error_code == BadRequest.code:
        return BadRequest(reason=words, **param)
    return Broken(reason=f"the engine failed at a request: {words}")


def interrupted(output_tokens: int, reason: str, detail: str = "") -> Interrupted:
    """detail: for the log alone."""
    return Interrupted(output_tokens=output_tokens, reason=reason, detail=detail)
