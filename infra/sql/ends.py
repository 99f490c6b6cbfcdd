"""What a job's or batch's end writes besides: a delivery for each webhook that is to be told, in the same transaction.

So none is sent before that commit, and none is missing after it, whoever dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from infra.sql import codec, dialect, rows
from infra.sql import tables_filing as filing
from infra.sql.tables import jobs
from infra.sql.tables_webhooks import deliveries, webhooks
from jobs.filing import BATCH_KEY, Batch
from jobs.webhooks import Webhook, delivery_id, event_body

_hooks, _jobs, _batches = webhooks.c, jobs.c, filing.batches.c
_PAGE = 500


class End(NamedTuple):
    """webhook: id of the one that the subject names, "" for none."""

    tenant: str
    subject: str
    event: str
    webhook: str


def tell_of_jobs(connection: sa.Connection, states: Mapping[str, str], now: float) -> None:
    """states: of each job, by id. A batch's job tells nobody: its batch does, once the files are there."""
    these = dialect.among(connection, _jobs.id, list(states))
    jobs = connection.execute(sa.select(_jobs.id, _jobs.tenant, _jobs.spec, _jobs.idempotency_key).where(these)).all()
    of_batches = _of_batches(connection, jobs)
    ends = [
        End(job.tenant, job.id, f"job.{states[job.id]}", rows.spec_of(job.spec).webhook)
        for job in jobs
        if job.id not in of_batches
    ]
    _tell(connection, ends, now)


def tell_of_batches(connection: sa.Connection, batches: Sequence[Batch], now: float) -> None:
    """In their terminal statuses."""
    ends = [End(batch.tenant, batch.id, f"batch.{batch.status}", batch.webhook) for batch in batches]
    _tell(connection, ends, now)


def _of_batches(connection: sa.Connection, jobs: Sequence[Any]) -> set[str]:
    """Those of the jobs that are a batch's."""
    keyed = {job.id: (job.idempotency_key or "", job.tenant) for job in jobs}
    asked = {
        name: (key.removeprefix(BATCH_KEY), tenant)
        for name, (key, tenant) in keyed.items()
        if key.startswith(BATCH_KEY)
    }
    if not asked:
        return set()
    these = dialect.among(connection, _batches.id, sorted({batch for batch, _ in asked.values()}))
    there = {(row.id, row.tenant) for row in connection.execute(sa.select(_batches.id, _batches.tenant).where(these))}
    return {name for name, batch in asked.items() if batch in there}


def _tell(connection: sa.Connection, ends: Sequence[End], now: float) -> None:
    standing, named = _listening(connection, ends)
    new = [
        {
            "id": delivery_id(webhook.id, end.subject),
            "webhook": webhook.id,
            "tenant": end.tenant,
            "subject": end.subject,
            "event": end.event,
            "body": event_body(end.event, end.subject, now),
            "created_at": now,
            "attempts": 0,
            "next_at": now,
            "outcome": "",
            "status": None,
            "reason": "",
        }
        for end in ends
        for webhook in (*standing.get(end.tenant, ()), *named.get((end.tenant, end.webhook), ()))
        if webhook.wants(end.event)
    ]
    if new:
        connection.execute(dialect.insert(connection, deliveries).on_conflict_do_nothing(), new)


def _listening(
    connection: sa.Connection, ends: Sequence[End]
) -> tuple[Mapping[str, list[Webhook]], Mapping[tuple[str, str], list[Webhook]]]:
    """Of their tenants: the standing ones, by tenant, and those that a subject names, by tenant and id."""
    standing: dict[str, list[Webhook]] = {}
    named: dict[tuple[str, str], list[Webhook]] = {}
    tenants, names = sorted({end.tenant for end in ends}), sorted({end.webhook for end in ends} - {""})
    wanted: sa.ColumnElement[bool] = _hooks.standing
    if names:
        wanted = sa.or_(wanted, dialect.among(connection, _hooks.id, names))
    mine = dialect.among(connection, _hooks.tenant, tenants)
    for row in connection.execute(sa.select(webhooks).where(mine, _hooks.ended_at.is_(None), wanted)):
        webhook = webhook_of(row)
        if row.standing:
            standing.setdefault(row.tenant, []).append(webhook)
        else:
            named.setdefault((row.tenant, row.id), []).append(webhook)
    return standing, named


def webhook_of(row: Any) -> Webhook:
    """From a row of `webhooks`."""
    given = row._asdict()
    return Webhook(**{**given, "events": codec.decode(tuple[str, ...], given["events"])})
