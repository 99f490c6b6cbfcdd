"""Webhooks and their deliveries in SQL. What ends write is in `ends.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, tenantstore, trail
from infra.sql.ends import webhook_of
from infra.sql.shelf import Shelf, all_of
from infra.sql.tables_webhooks import deliveries, webhooks
from jobs.errors import Conflict, NotFound
from jobs.webhooks import Delivery, Webhook

_hooks, _due = webhooks.c, deliveries.c
_LOOKED_AT = 16
"""So many times the room are candidates: of one tenant only some are taken."""


_NEVER = 12
"""An endpoint of a single job that nothing came for in so many times the span is of none that is still there."""


class WebhookEnded(Conflict):
    """Webhook {webhook} was removed; nothing is sent to it any more."""

    code = "webhook_ended"


class SqlWebhooks(Shelf):
    """`jobs.ports.webhooks.WebhookStore`."""

    def add_webhook(self, webhook: Webhook, actor: str) -> Webhook:
        def work(connection: sa.Connection) -> Webhook:
            now = self._db.now(connection)
            tenantstore.check_known(connection, webhook.tenant, now=now)
            new = webhook.evolve(created_at=webhook.created_at or now)
            if dialect.insert_new(connection, webhooks, _row(new)):
                if new.standing:
                    _note(connection, "webhook.added", new, actor, now)
                return new
            return _get(connection, webhook.id, webhook.tenant)

        return self._db.write(work)

    def webhook(self, webhook_id: str, tenant: str | None = None) -> Webhook:
        return self._db.ask(lambda c: _get(c, webhook_id, tenant))

    def webhooks(self, tenant: str | None = None) -> list[Webhook]:
        query = sa.select(webhooks).where(_hooks.standing, _hooks.ended_at.is_(None))
        if tenant is not None:
            query = query.where(_hooks.tenant == tenant)
        query = query.order_by(_hooks.created_at.desc(), _hooks.id.desc())
        return [webhook_of(row) for row in self._db.ask(all_of(query))]

    def end_webhook(self, webhook_id: str, *, tenant: str | None, actor: str, reason: str = "") -> Webhook:
        def work(connection: sa.Connection) -> Webhook:
            now = self._db.now(connection)
            had = _get(connection, webhook_id, tenant)
            first = webhooks.update().where(_hooks.id == webhook_id, _hooks.ended_at.is_(None))
            if connection.execute(first.values(ended_at=now)).rowcount and had.standing:
                _note(connection, "webhook.removed", had, actor, now)
            left = deliveries.update().where(_due.webhook == webhook_id, _due.next_at.is_not(None))
            why = codec.storable(reason or "the webhook was removed")
            connection.execute(left.values(next_at=None, outcome="failed", reason=why))
            return _get(connection, webhook_id, tenant)

        return self._db.write(work)

    def take_deliveries(self, *, limit: int, each: int, hold_s: float, skip: Collection[str] = ()) -> list[Delivery]:
        def due(connection: sa.Connection) -> sa.Select[Any]:
            query = sa.select(deliveries).where(_due.next_at <= self._db.now(connection))
            if skip:
                query = query.where(_due.tenant.not_in(sorted(skip)))
            return query.order_by(_due.next_at, _due.id).limit(limit * _LOOKED_AT)

        def work(connection: sa.Connection) -> list[Delivery]:
            found = connection.execute(due(connection).with_for_update(skip_locked=True)).all()
            taken = _share(found, limit, each)
            until = self._db.now(connection) + hold_s
            mine = deliveries.update().where(dialect.among(connection, _due.id, [row.id for row in taken]))
            connection.execute(mine.values(next_at=until, attempts=_due.attempts + 1))
            return [Delivery(**row._asdict() | {"attempts": row.attempts + 1, "next_at": until}) for row in taken]

        if self._db.ask(lambda c: c.execute(due(c).limit(1)).first()) is None:
            return []  # as nearly always: it costs no write
        return self._db.write(work)

    def settle_delivery(self, delivery: Delivery) -> None:
        mine = deliveries.update().where(
            _due.id == delivery.id, _due.attempts == delivery.attempts, _due.next_at.is_not(None)
        )
        new = {
            "next_at": delivery.next_at,
            "outcome": delivery.outcome,
            "status": delivery.status,
            "reason": codec.storable(delivery.reason),
        }

        def work(connection: sa.Connection) -> None:
            connection.execute(mine.values(new))

        self._db.write(work)

    def deliveries(
        self, tenant: str | None = None, *, webhook: str | None = None, outcome: str | None = None, limit: int = 100
    ) -> list[Delivery]:
        query = sa.select(deliveries).order_by(_due.created_at.desc(), _due.id.desc()).limit(limit)
        for column, wanted in ((_due.tenant, tenant), (_due.webhook, webhook), (_due.outcome, outcome)):
            if wanted is not None:
                query = query.where(column == wanted)
        return [Delivery(**row._asdict()) for row in self._db.ask(all_of(query))]

    def resend(self, delivery_id: str, tenant: str | None = None) -> Delivery:
        def work(connection: sa.Connection) -> Delivery:
            had = _delivery(connection, delivery_id, tenant)
            if _get(connection, had.webhook, None).ended_at is not None:
                raise WebhookEnded(webhook=had.webhook)
            new = {"next_at": self._db.now(connection), "outcome": "", "attempts": 0}
            connection.execute(deliveries.update().where(_due.id == delivery_id).values(new))
            return had.evolve(**new)

        return self._db.write(work)

    def forget_deliveries(self, older_than_s: float) -> int:
        def work(connection: sa.Connection) -> int:
            old = sa.and_(_due.created_at < self._db.now(connection) - older_than_s, _due.next_at.is_(None))
            theirs = sa.select(_due.webhook).where(old)
            others = sa.exists().where(_due.webhook == _hooks.id, sa.not_(old))
            connection.execute(webhooks.delete().where(sa.not_(_hooks.standing), _hooks.id.in_(theirs), ~others))
            gone: int = connection.execute(deliveries.delete().where(old)).rowcount
            never = _hooks.created_at < self._db.now(connection) - _NEVER * older_than_s  # their job was refused
            none = sa.exists().where(_due.webhook == _hooks.id)
            connection.execute(webhooks.delete().where(sa.not_(_hooks.standing), never, ~none))
            return gone

        return self._db.write(work)


def _share(found: Collection[Any], limit: int, each: int) -> list[Any]:
    """Of one tenant's no more than `each`: an endpoint that hangs holds up its own tenant and nobody else."""
    taken: list[Any] = []
    of: Counter[str] = Counter()
    for row in found:
        if len(taken) < limit and of[row.tenant] < each:
            of[row.tenant] += 1
            taken.append(row)
    return taken


def _row(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "tenant": webhook.tenant,
        "url": webhook.url,
        "sealed": webhook.sealed,
        "name": codec.storable(webhook.name),
        "events": codec.encode(webhook.events),
        "standing": webhook.standing,
        "created_at": webhook.created_at,
        "ended_at": webhook.ended_at,
    }


def _get(connection: sa.Connection, webhook_id: str, tenant: str | None) -> Webhook:
    row = connection.execute(sa.select(webhooks).where(_hooks.id == webhook_id)).one_or_none()
    if row is None or (tenant is not None and row.tenant != tenant):
        raise NotFound(kind="webhook", name=webhook_id, hint="List those there are: nightmill webhooks list")
    return webhook_of(row)


def _delivery(connection: sa.Connection, delivery_id: str, tenant: str | None) -> Delivery:
    row = connection.execute(sa.select(deliveries).where(_due.id == delivery_id)).one_or_none()
    if row is None or (tenant is not None and row.tenant != tenant):
        hint = "List those there are: nightmill webhooks deliveries"
        raise NotFound(kind="delivery", name=delivery_id, hint=hint)
    return Delivery(**row._asdict())


def _note(connection: sa.Connection, action: str, webhook: Webhook, actor: str, now: float) -> None:
    """Its URL may hold a secret of its own: the log has the host alone."""
    host = webhook.url.partition("://")[2].partition("/")[0].partition("?")[0]
    trail.write(connection, action, actor=actor, tenant=webhook.tenant, subject=webhook.id, detail=host, at=now)
