"""What a job's or batch's end writes besides: a delivery for each webhook that is to be told, in the same transaction.

So none is sent before that commit, and none is missing after it, whoever dies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, rows
from infra.sql import tables_filing as filing
from infra.sql.tables import jobs
from infra.sql.tables_webhooks import deliveries, webhooks
from jobs.filing import BATCH_KEY, Batch
from jobs.webhooks import Webhook, delivery_id, event_body

_hooks, _jobs, _batches = webhooks.c, jobs.c, filing.batches.c
_PAGE = 500


def tell_of_job(connection: sa.Connection, job_id: str, state: str, now: float) -> None:
    """A batch's job tells nobody: its batch does, once the files are there."""
    found = connection.execute(
        sa.select(_jobs.tenant, _jobs.spec, _jobs.idempotency_key).where(_jobs.id == job_id)
    ).one()
    if not _is_a_batch_s(connection, found):
        _tell(connection, found.tenant, job_id, f"job.{state}", rows.spec_of(found.spec).webhook, now)


def tell_of_batch(connection: sa.Connection, batch: Batch, now: float) -> None:
    """In its terminal status."""
    _tell(connection, batch.tenant, batch.id, f"batch.{batch.status}", batch.webhook, now)


def _is_a_batch_s(connection: sa.Connection, job: Any) -> bool:
    key = job.idempotency_key or ""
    if not key.startswith(BATCH_KEY):
        return False
    query = sa.select(_batches.id).where(_batches.id == key.removeprefix(BATCH_KEY), _batches.tenant == job.tenant)
    return connection.execute(query).first() is not None


def _tell(connection: sa.Connection, tenant: str, subject: str, event: str, named: str, now: float) -> None:
    body = event_body(event, subject, now)
    new = [
        {
            "id": delivery_id(webhook.id, subject),
            "webhook": webhook.id,
            "tenant": tenant,
            "subject": subject,
            "event": event,
            "body": body,
            "created_at": now,
            "attempts": 0,
            "next_at": now,
            "outcome": "",
            "status": None,
            "reason": "",
        }
        for webhook in _listening(connection, tenant, named)
        if webhook.wants(event)
    ]
    if new:
        connection.execute(dialect.insert(connection, deliveries).on_conflict_do_nothing(), new)


def _listening(connection: sa.Connection, tenant: str, named: str) -> Iterator[Webhook]:
    """The tenant's standing ones, and the one that the subject names."""
    mine = sa.select(webhooks).where(_hooks.tenant == tenant, _hooks.ended_at.is_(None))
    for row in connection.execute(mine.where(_hooks.standing)):
        yield webhook_of(row)
    if named:
        for row in connection.execute(mine.where(_hooks.id == named, sa.not_(_hooks.standing))):
            yield webhook_of(row)


def webhook_of(row: Any) -> Webhook:
    """From a row of `webhooks`."""
    given = row._asdict()
    return Webhook(**{**given, "events": codec.decode(tuple[str, ...], given["events"])})
