"""When a job pauses by itself, and what state it ends in: pure rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.errors import Conflict, NightmillError, Refused, StorageCorrupt, StorageFull, Unavailable
from jobs.model import Job, JobState, Outcome, TaskState, Usage, Value
from jobs.outcomes import share_spoiled

RESUMED = "resumed"
"""What the reason of a job begins with that a person told to go on."""

OUR_FAULT = "a fault in Nightmill itself stopped it; the log has it under the job's id. Resume it once that is mended."
"""Why a job pauses at what nobody foresaw. What it was, the operator reads in the log and a tenant need not know."""

OPEN_TASKS = frozenset({TaskState.QUEUED, TaskState.RELEASED, TaskState.LEASED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRule(Value):
    """least_rows: rows to see before the share counts. seen: totals when the job was last resumed by a person, who
    knew of them. after_sample: pause once the sample is done.
    """

    least_rows: int = 200
    seen: Usage = Usage()
    after_sample: bool = True


def why_pause(job: Job, counts: Mapping[TaskState, int], rule: PauseRule) -> str | None:
    """The reason to pause a running job now, or None."""
    if _sample_done(job, counts) and rule.after_sample:
        return f"the sample of {job.spec.sample} rows is done; look at the results, then resume for the rest"
    if job.spec.pause_on is None:
        return None
    fresh = {k: n - rule.seen.outcomes.get(k, 0) for k, n in job.usage.outcomes.items()}
    share = share_spoiled(fresh)
    if sum(fresh.values()) < rule.least_rows or share <= job.spec.pause_on:
        return None
    spoiled = fresh.get(Outcome.ERROR, 0) + fresh.get(Outcome.TRUNCATED, 0)
    return (
        f"{spoiled} of {sum(fresh.values())} rows ({share:.0%}) are errors or truncated, "
        f"more than --pause-on {job.spec.pause_on:.0%}"
    )


def why_held(error: Exception) -> str | None:
    """The reason to pause a job at whose work this was raised; None to try again without: a backend is away."""
    if isinstance(error, Unavailable) and not isinstance(error, StorageFull):
        return None
    told = isinstance(error, (Refused, Conflict, Unavailable, StorageCorrupt))
    return error.sentence if told and isinstance(error, NightmillError) else OUR_FAULT


def _sample_done(job: Job, counts: Mapping[TaskState, int]) -> bool:
    return bool(job.spec.sample) and job.next_segment == 1 and not job.planned and not open_tasks(counts)


def open_tasks(counts: Mapping[TaskState, int]) -> int:
    """Tasks that are not at their end."""
    return sum(counts.get(state, 0) for state in OPEN_TASKS)


def final_state(job: Job, usage: Usage) -> tuple[JobState, str]:
    """The terminal state and its reason once every row is accounted for.

    It follows from what became of the rows, not from the job's state: a cancel that comes after the last row changes
    nothing, and so two finalisers, one on either side of it, write the same manifest.
    """
    if usage.outcomes.get(Outcome.CANCELLED):
        return JobState.CANCELLED, job.reason
    if usage.outcomes.get(Outcome.EXPIRED):
        return JobState.EXPIRED, job.reason
    errors = usage.outcomes.get(Outcome.ERROR, 0)
    if usage.rows and errors == usage.rows:
        return JobState.FAILED, "every row is an error"
    return JobState.COMPLETED, ""
