"""One factory a value: a plain example, and what the test cares about as overrides."""

from __future__ import annotations

from typing import Any

from jobs import ranges
from jobs.model import (
    Job,
    JobSpec,
    JobState,
    Message,
    Part,
    Price,
    Priority,
    Source,
    Task,
    TaskState,
    Usage,
)
from jobs.ports.engine import EngineResult, RequestProfile
from jobs.ports.rows import OpenRows
from jobs.ranges import Range, Ranges

PROFILE = RequestProfile(key="k", kind="chat")


def span(start: int, stop: int) -> Ranges:
    return (Range(start, stop),)


def a_price(**changes: Any) -> Price:
    """0.15/0.075/0.60 USD per million tokens."""
    plain = Price(
        version="p1", model="m", currency="USD", input_micro=150_000, cached_micro=75_000, output_micro=600_000
    )
    return plain.evolve(**changes)


def a_spec(**changes: Any) -> JobSpec:
    return JobSpec(model="m", model_kind="chat", model_checksum="c").evolve(**changes)


def a_job(**changes: Any) -> Job:
    """A running job `j` of tenant `t`, wholly planned."""
    plain = Job(
        id="j",
        tenant="t",
        project="p",
        tags={"team": "search"},
        creator="alice",
        spec=a_spec(),
        price=a_price(),
        pool="pool",
        priority=Priority.NORMAL,
        state=JobState.RUNNING,
        planned=True,
        next_segment=1,
    )
    return plain.evolve(**changes)


def a_task(**changes: Any) -> Task:
    """The queued task `j.0` of rows 0 to 9; `rows` follows from `ranges` unless given."""
    rows = ranges.count(changes.get("ranges", span(0, 10)))
    plain = Task(
        id="j.0",
        job="j",
        segment=0,
        pool="pool",
        priority=Priority.NORMAL,
        source=Source(),
        ranges=span(0, 10),
        rows=rows,
        est_input_tokens=10 * rows,
        est_output_tokens=5 * rows,
    )
    return plain.evolve(**changes)


def a_released_task(**changes: Any) -> Task:
    return a_task(**{"state": TaskState.RELEASED, "epoch": 1, "ticket": "ticket-1", **changes})


def a_leased_task(**changes: Any) -> Task:
    held = {"state": TaskState.LEASED, "epoch": 1, "ticket": "ticket-1", "token": "token-1", "owner": "w"}
    return a_task(**{**held, "lease_until": 30.0, **changes})


def a_message(**changes: Any) -> Message:
    """What releases `a_released_task`."""
    plain = Message(task="j.0", epoch=1, ticket="ticket-1", pool="pool", priority=Priority.NORMAL)
    return plain.evolve(**changes)


def a_part(task: Task, rows: Ranges | None = None, **changes: Any) -> Part:
    """The part of these rows (all of the task's) under the task's token, all `ok`."""
    held = task.ranges if rows is None else rows
    size = ranges.count(held)
    plain = Part(
        task=task.id,
        uri=f"parts/{task.id}-{task.token}",
        size=1,
        checksum=f"{task.token}:{held}",
        rows=size,
        first_row=held[0].start,
        last_row=held[-1].stop - 1,
        ascending=True,
        outcomes={"ok": size},
    )
    return plain.evolve(**changes)


def a_usage(**changes: Any) -> Usage:
    return Usage(rows=10, input_tokens=100, cached_tokens=40, output_tokens=50, outcomes={"ok": 10}).evolve(**changes)


def open_rows(task: Task, **changes: Any) -> OpenRows:
    """Prompts `row 0`, `row 1` … after the rows' numbers; all of one profile."""
    prompts = [f"row {row}" for row in ranges.rows_of(task.ranges)]
    plain: dict[str, Any] = {"size": task.rows, "prompts": prompts, "profiles": (PROFILE,)}
    return OpenRows(**{**plain, **changes})


def a_result(row_id: int, **changes: Any) -> EngineResult:
    """A good answer to 10 tokens, 4 of them cached, in 5."""
    plain = {"finish_reason": "stop", "text": "yes", "input_tokens": 10, "cached_tokens": 4, "output_tokens": 5}
    return EngineResult(**{"id": row_id, **plain, **changes})
