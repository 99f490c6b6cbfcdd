"""What a sweeper asks of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import dialect, rows, tables
from infra.sql.shelf import Shelf, all_of
from jobs.model import Job, TaskState
from jobs.sweeping import LeaseEnd

_jobs = tables.jobs.c
_tasks = tables.tasks.c
_reservations = tables.reservations.c
_PAGE = 200
_CHUNK = 500  # names in one IN list


class SqlSweep(Shelf):
    """`jobs.ports.sweeping.SweepStore`."""

    def every_job(self) -> Iterator[tuple[Job, bool]]:
        """By pages, so that no read transaction stays open while the caller works."""
        after = ""
        while True:
            query = rows.jobs_with_totals.add_columns(_jobs.sealed_at).where(_jobs.id > after)
            page = self._db.ask(all_of(query.order_by(_jobs.id).limit(_PAGE)))
            for row in page:
                yield rows.job_of(row), row.sealed_at is not None
            if len(page) < _PAGE:
                return
            after = page[-1].id

    def lease_ends(self, task_ids: Sequence[str]) -> dict[str, LeaseEnd]:
        """A reservation is open exactly while its task is released or leased, so its times bound those of the lease."""
        found: dict[str, LeaseEnd] = {}
        for at in range(0, len(task_ids), _CHUNK):
            for row in self._db.ask(_of(task_ids[at : at + _CHUNK])):
                state = TaskState(row.state)
                found[row.id] = LeaseEnd(task=row.id, state=state, token=row.token, since=row.since, part=row.part)
        return found


def _of(task_ids: Sequence[str]) -> Callable[[sa.Connection], list[Any]]:
    since = sa.func.max(sa.func.coalesce(_reservations.closed_at, _reservations.opened_at)).label("since")
    part = tables.parts.c.uri.label("part")
    query = (
        sa.select(_tasks.id, _tasks.state, _tasks.token, since, part)
        .outerjoin(tables.reservations, _reservations.task == _tasks.id)
        .outerjoin(tables.parts, tables.parts.c.task == _tasks.id)
        .group_by(_tasks.id, _tasks.state, _tasks.token, part)
    )
    return lambda connection: [*connection.execute(query.where(dialect.among(connection, _tasks.id, task_ids)))]
