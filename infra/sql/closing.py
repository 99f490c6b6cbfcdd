"""Closing a job's record, and what belongs into the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, ends, folding, tables
from jobs.errors import Broken
from jobs.model import JobState, TaskState
from jobs.ports.store import End

_jobs = tables.jobs.c
_FOLD = 5000  # entries a block
_FINAL = [state.value for state in JobState if state.terminal]
_open_task = tables.tasks.c
_STILL_OPEN = sa.exists().where(
    _open_task.job == _jobs.id,
    _open_task.state.in_([tables.literal(state.value) for state in TaskState if not state.terminal]),
)
_MAY_CLOSE = (_jobs.planned, ~_STILL_OPEN, _jobs.state.not_in([tables.literal(state) for state in _FINAL]))
_CLOSE = (
    tables.jobs.update()
    .where(_jobs.id == sa.bindparam("of_job"), _jobs.version == sa.bindparam("of_version"), *_MAY_CLOSE)
    .values(version=_jobs.version + 1)
)  # sets the other columns that its parameters name


def close(connection: sa.Connection, ends: Sequence[End], now: float) -> list[bool]:
    """Compare-and-set of each; False if it lost. All are locked first, in the order of their ids."""
    these = dialect.among(connection, _jobs.id, sorted({end.job for end in ends}))
    query = sa.select(_jobs.id, _jobs.version).where(these, *_MAY_CLOSE).order_by(_jobs.id).with_for_update()
    versions = {row.id: row.version for row in connection.execute(query)}
    closes: dict[str, dict[str, Any]] = {}
    answers: list[bool] = []
    for end in ends:
        answers.append(versions.get(end.job) == end.version and end.job not in closes)
        if answers[-1]:
            closes[end.job] = _closed(end, now)
    if closes and connection.execute(_CLOSE, [*closes.values()]).rowcount != len(closes):
        raise Broken(reason="a job was opened again under its lock")
    return answers


def _closed(end: End, now: float) -> dict[str, Any]:
    return {
        "of_job": end.job,
        "of_version": end.version,
        "state": end.to.value,
        "reason": codec.storable(end.reason),
        "finished_at": now,
        "manifest": end.manifest,
        "void": codec.encode(end.void),
    }


def settle(connection: sa.Connection, closed: Sequence[End], now: float) -> None:
    """What is left of their inbox and what their void tasks add make their totals; and whoever asked is told."""
    if not closed:
        return
    while folding.fold(connection, _FOLD, now, jobs=[end.job for end in closed]).transactions:
        pass
    folding.add_totals(connection, {end.job: (end.void, 0) for end in closed if end.void.rows})
    ends.tell_of_jobs(connection, {end.job: end.to.value for end in closed}, now)
