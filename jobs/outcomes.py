"""From what the engine says of a row to the row's outcome."""

from __future__ import annotations

from jobs.model import Outcome
from jobs.ports.engine import FinishReason

SCHEMA_MISMATCH = "schema_mismatch"


def of_result(
    finish_reason: FinishReason, error_code: str | None, *, fits_schema: bool = True, ending: Outcome | None = None
) -> tuple[Outcome, str | None]:
    """(outcome, error code). `ending`: what an aborted row becomes, in a job that is cancelled or expired.

    Cut off by its limit is `truncated` whatever the text looks like; complete but against its schema is `error`.
    """
    if finish_reason == "error":
        return Outcome.ERROR, error_code or "engine_error"
    if finish_reason == "abort":
        return (ending, None) if ending else (Outcome.ERROR, "aborted")
    if finish_reason == "length":
        return Outcome.TRUNCATED, None
    if not fits_schema:
        return Outcome.ERROR, SCHEMA_MISMATCH
    return Outcome.OK, None


def share_spoiled(outcomes: dict[str, int]) -> float:
    """Errors plus truncated rows as a share of all rows counted, 0.0 to 1.0."""
    total = sum(outcomes.values())
    spoiled = outcomes.get(Outcome.ERROR, 0) + outcomes.get(Outcome.TRUNCATED, 0)
    return spoiled / total if total else 0.0
