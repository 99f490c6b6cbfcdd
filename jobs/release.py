"""How much to release now, and what it may cost: a topic holds only the next few minutes."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.model import Job, Task, Value
from jobs.pricing import upper_bound

BYTES_PER_ESTIMATED_TOKEN = 4
FRAME_TOKENS_PER_ROW = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePolicy(Value):
    """ahead_tasks, ahead_rows: released but unleased work, a worker; either may be filled.

    batch: tasks released in one transaction at most.
    """

    ahead_tasks: int = 2
    ahead_rows: int = 1024
    batch: int = 512


def how_many(queued_rows: list[int], released_rows: list[int], policy: ReleasePolicy, workers: int = 1) -> int:
    """How many of the next queued tasks (their row counts, in order) to release beside those already released."""
    tasks, rows = len(released_rows), sum(released_rows)
    count = 0
    for size in queued_rows[: policy.batch]:
        if tasks >= policy.ahead_tasks * workers and rows >= policy.ahead_rows * workers:
            break
        count += 1
        tasks += 1
        rows += size
    return count


def reserve_pico(job: Job, task: Task) -> int:
    """An upper bound of what the task can cost.

    A token of a byte-level vocabulary is at least one byte, and the estimate counts four bytes a token; the chat
    template adds a frame to each row.
    """
    input_tokens = BYTES_PER_ESTIMATED_TOKEN * task.est_input_tokens + FRAME_TOKENS_PER_ROW * task.rows
    return upper_bound(job.price, input_tokens=input_tokens, output_tokens=task.est_output_tokens)
