"""The audit log: events are written in the transaction of the change that they tell of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import tables_filing as tables
from infra.sql.shelf import Shelf, all_of
from jobs.tenancy import AuditEvent

_events = tables.audit_events.c
_FIELDS = ("action", "actor", "tenant", "subject", "detail", "at")


class SqlTrail(Shelf):
    """The audit log of `jobs.ports.tenancy.TenantStore`."""

    def note(self, event: AuditEvent) -> None:
        row = {name: getattr(event, name) for name in _FIELDS}

        def work(connection: sa.Connection) -> None:
            at = event.at or self._db.now(connection)
            connection.execute(tables.audit_events.insert(), row | {"at": at})

        self._db.write(work)

    def audit(self, *, tenant: str | None = None, limit: int = 100) -> Sequence[AuditEvent]:
        query = sa.select(tables.audit_events).order_by(_events.id.desc()).limit(limit)
        if tenant is not None:
            query = query.where(_events.tenant == tenant)
        return [_event(row) for row in self._db.ask(all_of(query))]


def write(
    connection: sa.Connection, action: str, *, actor: str, tenant: str, subject: str, detail: str = "", at: float
) -> None:
    """One event; its id is the database's."""
    row = {"action": action, "actor": actor, "tenant": tenant, "subject": subject, "detail": detail, "at": at}
    connection.execute(tables.audit_events.insert(), row)


def _event(row: Any) -> AuditEvent:
    return AuditEvent(id=row.id, **{name: getattr(row, name) for name in _FIELDS})
