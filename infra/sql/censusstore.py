"""The census in SQL: what waits, counted by short reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import rows, tables
from infra.sql.shelf import Shelf
from jobs.model import JobState, Priority, TaskState
from jobs.ports.census import Backlog, Census, Lag

_WASTE = "platform:waste"

_jobs, _tasks, _held = tables.jobs.c, tables.tasks.c, tables.reservations.c
_outbox, _inbox, _entries, _balance = tables.outbox.c, tables.inbox.c, tables.entries.c, tables.balances.c

_TOKENS_A_ROW = (
    sa.select((_tasks.est_input_tokens + _tasks.est_output_tokens) * 1.0 / _tasks.rows)
    .where(_tasks.job == _jobs.id, _tasks.state == TaskState.QUEUED.value)
    .order_by(_tasks.position)
    .limit(1)
    .scalar_subquery()
)
"""Of the job's next task; a subquery, so that each job costs one look into the index whatever the planner thinks."""

_ACTIVE = (
    sa.select(
        _jobs.pool,
        _jobs.priority,
        _jobs.state,
        _jobs.created_at,
        _jobs.total_rows,
        tables.job_totals.c.usage,
        _TOKENS_A_ROW.label("tokens_a_row"),
    )
    .join_from(tables.jobs, tables.job_totals, tables.job_totals.c.job == _jobs.id, isouter=True)
    .where(_jobs.finished_at.is_(None))
)
_UNPUBLISHED = (
    sa.select(_outbox.pool, sa.func.count().label("number"), sa.func.min(_outbox.created_at).label("oldest"))
    .where(_outbox.published_at.is_(None))
    .group_by(_outbox.pool)
)
_LEASED = (
    sa.select(_tasks.pool, sa.func.count().label("number"))
    .where(_tasks.state == tables.literal(TaskState.LEASED.value))
    .group_by(_tasks.pool)
)
_RESERVED = sa.select(
    sa.func.count().label("number"),
    sa.func.sum(sa.cast(_held.amount_pico, sa.Double)).label("pico"),  # as a float: a sum may pass 64 bits
).where(_held.state == tables.literal("open"))
_UNFOLDED = sa.select(sa.func.count()).select_from(tables.inbox)
_NEXT_LETTER = sa.select(_inbox.txn).where(_inbox.lines > 0).order_by(_inbox.id).limit(1)
_POSTED_AT = sa.select(_entries.at).where(_entries.txn == sa.bindparam("of_txn")).order_by(_entries.line).limit(1)
_WASTED = sa.select(_balance.currency, _balance.amount_pico).where(_balance.account == _WASTE)


class SqlCensus(Shelf):
    """`jobs.ports.census.CensusStore`."""

    def census(self) -> Census:
        return self._db.ask(lambda connection: _census(connection, self._db.now(connection)))


def _census(connection: sa.Connection, now: float) -> Census:
    active = connection.execute(_ACTIVE).all()
    reserved = connection.execute(_RESERVED).one()
    return Census(
        jobs=Counter((row.pool, JobState(row.state)) for row in active),
        backlog=_backlog(active, now),
        outbox={
            row.pool: Lag(count=row.number, oldest_s=_age(row.oldest, now)) for row in _all(connection, _UNPUBLISHED)
        },
        leases={row.pool: row.number for row in _all(connection, _LEASED)},
        reservations=reserved.number,
        reserved_pico=int(reserved.pico or 0),
        inbox=Lag(count=connection.execute(_UNFOLDED).scalar_one(), oldest_s=_folder_age(connection, now)),
        waste_pico={row.currency: row.amount_pico for row in _all(connection, _WASTED)},
    )


def _all(connection: sa.Connection, query: sa.Select[Any]) -> Sequence[Any]:
    return connection.execute(query).all()


def _backlog(active: Sequence[Any], now: float) -> dict[tuple[str, Priority], Backlog]:
    found: dict[tuple[str, Priority], Backlog] = {}
    for row in active:
        used = rows.usage_of(row.usage)
        left = row.total_rows - used.rows
        if JobState(row.state) is not JobState.RUNNING or left <= 0:
            continue
        spent = used.input_tokens + used.cached_tokens + used.output_tokens
        a_row = spent / used.rows if used.rows else float(row.tokens_a_row or 0.0)
        heap = Backlog(rows=left, tokens=round(left * a_row), oldest_s=_age(row.created_at, now))
        key = row.pool, Priority(row.priority)
        found[key] = found.get(key, Backlog()).plus(heap)
    return found


def _folder_age(connection: sa.Connection, now: float) -> float:
    """By the entries of the oldest transaction that has any: the inbox itself has no time."""
    txn = connection.execute(_NEXT_LETTER).scalar_one_or_none()
    at = None if txn is None else connection.execute(_POSTED_AT, {"of_txn": txn}).scalar_one_or_none()
    return 0.0 if at is None else _age(at, now)


def _age(at: float, now: float) -> float:
    return max(0.0, now - at)
