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

    batch: tasks read and released in one tick at most; each lease is followed by another tick.
    """

    ahead_tasks: int = 2
    ahead_rows: int = 1024
    batch: int = 64

    def enough(self, tasks: int, rows: int, workers: int = 1) -> bool:
        """Whether so much released work need not grow."""
        return tasks >= self.ahead_tasks * workers and rows >= self.ahead_rows * workers

    def to_read(self, released_rows: list[int]) -> int:
        """How many queued tasks to look at: where enough is released, only the first, which planning asks for."""
        return 1 if self.enough(len(released_rows), sum(released_rows)) else self.batch


def how_many(queued_rows: list[int], released_rows: list[int], policy: ReleasePolicy, workers: int = 1) -> int:
    """How many of the next queued tasks (their row counts, in order) to release beside those already released."""
    tasks, rows = len(released_rows), sum(released_rows)
    count = 0
    for size in queued_rows[: policy.batch]:
        if policy.enough(tasks, rows, workers):
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
