"""Between rows of the tables and values of the domain."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from infra.sql import codec, tables
from jobs.ledger import Entry
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
    VoidReason,
)
from jobs.ranges import Range

NO_USAGE = codec.encode(Usage())

job_columns = (
    *(c for c in tables.jobs.c if c.name not in {"manifest", "void", "sealed_at"}),
    tables.job_totals.c.usage,
    tables.job_totals.c.amount_pico,
)
jobs_with_totals = sa.select(*job_columns).join_from(
    tables.jobs, tables.job_totals, tables.job_totals.c.job == tables.jobs.c.id, isouter=True
)


def job_row(job: Job, *, created_at: float) -> dict[str, Any]:
    """A new job's row; its totals are the folder's."""
    deadline_s = job.spec.deadline_s
    deadline_at = created_at + deadline_s if job.deadline_at is None and deadline_s is not None else job.deadline_at
    return {
        "id": job.id,
        "tenant": job.tenant,
        "project": job.project,
        "tags": codec.encode(job.tags),
        "creator": job.creator,
        "spec": codec.encode(job.spec),
        "price": codec.encode(job.price),
        "pool": job.pool,
        "priority": job.priority.value,
        "state": job.state.value,
        "reason": job.reason,
        "version": job.version,
        "total_rows": job.total_rows,
        "next_segment": job.next_segment,
        "planned": job.planned,
        "parent": job.parent,
        "idempotency_key": job.idempotency_key,
        "created_at": created_at,
        "finished_at": job.finished_at,
        "deadline_at": deadline_at,
        "manifest": None,
        "void": None,
        "sealed_at": None,
        "request": codec.encode(job.request) if job.request else None,
    }


@lru_cache(maxsize=4096)
def job_of(row: Any) -> Job:
    """From a row of `jobs_with_totals`; one that has not changed is not decoded again, ten times a second."""
    return Job(
        id=row.id,
        tenant=row.tenant,
        project=row.project,
        tags=tags_of(row.tags),
        creator=row.creator,
        spec=spec_of(row.spec),
        price=price_of(row.price),
        pool=row.pool,
        priority=Priority(row.priority),
        state=JobState(row.state),
        reason=row.reason,
        version=row.version,
        total_rows=row.total_rows,
        next_segment=row.next_segment,
        planned=row.planned,
        parent=row.parent,
        idempotency_key=row.idempotency_key,
        request=tags_of(row.request) if row.request else {},
        created_at=row.created_at,
        finished_at=row.finished_at,
        deadline_at=row.deadline_at,
        usage=usage_of(row.usage),
        amount_pico=row.amount_pico or 0,
    )


@lru_cache(maxsize=4096)
def spec_of(text: str) -> JobSpec:
    """What is frozen is decoded once: a scheduler reads the same jobs ten times a second."""
    return codec.decode(JobSpec, text)


@lru_cache(maxsize=256)
def price_of(text: str) -> Price:
    """A frozen price, of which there are few."""
    return codec.decode(Price, text)


def usage_of(text: str | None) -> Usage:
    """No usage where nothing was written."""
    return codec.decode(Usage, text) if text else Usage()


def task_row(task: Task, position: str) -> dict[str, Any]:
    """A new task's row. Its ranges are a list of [start, stop]."""
    return {
        "id": task.id,
        "job": task.job,
        "segment": task.segment,
        "position": position,
        "pool": task.pool,
        "priority": task.priority.value,
        "staged": task.source.staged,
        "row_group": task.source.row_group,
        "ranges": codec.encode(task.ranges),
        "rows": task.rows,
        "est_input_tokens": task.est_input_tokens,
        "est_output_tokens": task.est_output_tokens,
        "state": task.state.value,
        "epoch": task.epoch,
        "ticket": task.ticket,
        "token": task.token,
        "owner": task.owner,
        "lease_until": task.lease_until,
        "suspect": task.suspect,
        "alone_deaths": task.alone_deaths,
        "void_reason": task.void_reason and task.void_reason.value,
        "parent": task.parent,
        "usage": None,
        "progress": None,
    }


def task_of(row: Any) -> Task:
    """From a whole row of `tasks`."""
    return Task(
        id=row.id,
        job=row.job,
        segment=row.segment,
        pool=row.pool,
        priority=Priority(row.priority),
        source=Source(staged=row.staged, row_group=row.row_group),
        ranges=tuple(Range(*pair) for pair in orjson.loads(row.ranges)),
        rows=row.rows,
        est_input_tokens=row.est_input_tokens,
        est_output_tokens=row.est_output_tokens,
        state=TaskState(row.state),
        epoch=row.epoch,
        ticket=row.ticket,
        token=row.token,
        owner=row.owner,
        lease_until=row.lease_until,
        suspect=row.suspect,
        alone_deaths=row.alone_deaths,
        void_reason=VoidReason(row.void_reason) if row.void_reason else None,
        parent=row.parent,
    )


class Standing(NamedTuple):
    """What a move looks at and changes of a task, and its place in planning order."""

    task: Task
    position: str


standing_columns = tuple(
    tables.tasks.c[name]
    for name in (
        "id", "job", "segment", "position", "pool", "priority", "state", "epoch", "ticket", "token", "owner",
        "lease_until", "suspect", "alone_deaths", "void_reason",
    )
)  # fmt: skip


def standing_of(row: Any) -> Standing:
    """A task without its rows: those never change, and a task of a shuffled sample may have thousands of ranges."""
    task = Task(
        id=row.id,
        job=row.job,
        segment=row.segment,
        pool=row.pool,
        priority=Priority(row.priority),
        source=Source(),
        ranges=(),
        rows=0,
        state=TaskState(row.state),
        epoch=row.epoch,
        ticket=row.ticket,
        token=row.token,
        owner=row.owner,
        lease_until=row.lease_until,
        suspect=row.suspect,
        alone_deaths=row.alone_deaths,
        void_reason=VoidReason(row.void_reason) if row.void_reason else None,
    )
    return Standing(task, row.position)


def part_row(part: Part, job: str, position: str) -> dict[str, Any]:
    """A manifest entry; `position` is its task's."""
    return {
        "task": part.task,
        "job": job,
        "position": position,
        "uri": part.uri,
        "size": part.size,
        "checksum": part.checksum,
        "rows": part.rows,
        "first_row": part.first_row,
        "last_row": part.last_row,
        "ascending": part.ascending,
        "outcomes": codec.encode(part.outcomes),
    }


def part_of(row: Any) -> Part:
    """From a row of `parts`."""
    return Part(
        task=row.task,
        uri=row.uri,
        size=row.size,
        checksum=row.checksum,
        rows=row.rows,
        first_row=row.first_row,
        last_row=row.last_row,
        ascending=row.ascending,
        outcomes=orjson.loads(row.outcomes),
    )


def message_of(row: Any) -> Message:
    """From a row of `outbox`."""
    return Message(task=row.task, epoch=row.epoch, ticket=row.ticket, pool=row.pool, priority=Priority(row.priority))


_ENTRY_FIELDS = tuple(name for name in Entry.__slots__ if name != "tags")
entry_columns = tuple(tables.entries.c[name] for name in Entry.__slots__)


def entry_row(entry: Entry) -> dict[str, Any]:
    """A new entry's row; its id is the database's."""
    row = {name: getattr(entry, name) for name in _ENTRY_FIELDS}
    row["tags"] = codec.encode(entry.tags)
    return row


def entry_of(row: Any) -> Entry:
    """From a row that has `entry_columns`."""
    values = {name: getattr(row, name) for name in _ENTRY_FIELDS}
    return Entry(tags=orjson.loads(row.tags), **values)


def tags_of(text: str) -> dict[str, str]:
    """A job's or an entry's tags."""
    tags: dict[str, str] = orjson.loads(text)
    return tags
