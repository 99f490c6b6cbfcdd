"""The tables of interactive requests: what was served, and the state of rate limits. As in `tables.py`."""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql.columns import key, maybe, metadata, number, text, time

# One row for each request that was served, written with its entries. price, usage, tags: JSON.
requests = sa.Table(
    "requests",
    metadata,
    key("id"),
    text("tenant"),
    text("project"),
    text("tags"),
    text("creator"),
    text("model"),
    text("asked_model"),
    text("endpoint"),
    text("pool"),
    text("worker"),
    text("price"),
    text("usage"),
    text("outcome"),
    maybe("first_token_s", sa.Double),
    sa.Column("seconds", sa.Double, nullable=False),
    time("at"),
)

# tat_ns: the theoretical arrival time of `jobs.gcra`, in nanoseconds since the epoch.
rate_state = sa.Table("rate_state", metadata, key("scope"), key("kind"), number("tat_ns"))

# Places for requests at a time that a replica holds, until it renews them or they lapse.
slot_leases = sa.Table(
    "slot_leases",
    metadata,
    key("scope"),
    key("holder"),
    number("slots"),
    time("until"),
)
