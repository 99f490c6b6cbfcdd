"""The tables of webhooks and of what is to be delivered to them. The same metadata as `tables.py`."""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql.columns import flag, key, maybe, metadata, number, text, time, where

# events: JSON, a list. standing: told of all that its tenant has; else only of what names it.
webhooks = sa.Table(
    "webhooks",
    metadata,
    key("id"),
    text("tenant"),
    text("url"),
    text("sealed"),
    text("name"),
    text("events"),
    flag("standing"),
    time("created_at"),
    maybe("ended_at", sa.Double),
    sa.Index("webhooks_standing", "tenant", "standing", "created_at", "id", **where("ended_at IS NULL")),
)

# next_at: of the next attempt, absent once it is settled. outcome: "", "delivered" or "failed".
deliveries = sa.Table(
    "deliveries",
    metadata,
    key("id"),
    text("webhook"),
    text("tenant"),
    text("subject"),
    text("event"),
    text("body"),
    time("created_at"),
    number("attempts"),
    maybe("next_at", sa.Double),
    text("outcome"),
    maybe("status", sa.Integer),
    text("reason"),
    sa.Index("deliveries_once", "webhook", "subject", unique=True),
    sa.Index("deliveries_due", "next_at", "id", **where("next_at IS NOT NULL")),
    sa.Index("deliveries_of_tenant", "tenant", "created_at", "id"),
    sa.Index("deliveries_newest", "created_at", "id"),
)
