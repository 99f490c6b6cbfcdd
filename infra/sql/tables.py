"""The tables, as SQLAlchemy Core. `migrations/` makes them; a test holds the two equal.

There are no foreign keys: rows are never deleted once others point at them, and on PostgreSQL each insert would
share-lock the job's row, which the commit of a task must not touch. No column has a default: what a caller forgets
must fail. JSON is text written by `codec`: nothing in the database looks inside it. Times are seconds since the epoch.
"""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql.columns import Amount, Serial, Text, flag, key, literal, maybe, metadata, number, text, time, where

__all__ = ["APPEND_ONLY", "STORAGE", "Amount", "Serial", "Text", "literal", "metadata"]

# manifest, void: of the finaliser, void being the usage of void tasks; sealed_at: `_SUCCESS` was there. request: digest
# by field of what was asked for.
jobs = sa.Table(
    "jobs",
    metadata,
    key("id"),
    text("tenant"),
    text("project"),
    text("tags"),
    text("creator"),
    text("spec"),
    text("price"),
    text("pool"),
    text("priority"),
    text("state"),
    text("reason"),
    number("version"),
    number("total_rows"),
    number("next_segment"),
    flag("planned"),
    maybe("parent"),
    maybe("idempotency_key"),
    time("created_at"),
    maybe("finished_at", sa.Double),
    maybe("deadline_at", sa.Double),
    maybe("manifest"),
    maybe("void"),
    maybe("sealed_at", sa.Double),
    maybe("request"),
    sa.Index("jobs_unsealed", "created_at", "id", **where("finished_at IS NOT NULL AND sealed_at IS NULL")),
    sa.Index("jobs_active", "pool", "created_at", "id", **where("finished_at IS NULL")),
    sa.Index("jobs_newest", "created_at", "id"),
    sa.Index("jobs_of_tenant", "tenant", "created_at", "id"),
    sa.Index("jobs_of_parent", "parent", **where("parent IS NOT NULL")),
    sa.Index("jobs_once", "tenant", "idempotency_key", unique=True, **where("idempotency_key IS NOT NULL")),
)

# Written by the folder alone, so that it never waits for a job's row that a release has share-locked.
job_totals = sa.Table(
    "job_totals", metadata, key("job"), text("usage"), sa.Column("amount_pico", Amount, nullable=False)
)

input_files = sa.Table(
    "input_files",
    metadata,
    key("job"),
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    text("file"),
)

# position: planning order as text, "SEGMENT.NUMBER" with leading zeros, then ".NUMBER" for each child below.
# usage: of the commit; progress: what the present lease last reported. No index on lease_until: beats change it.
tasks = sa.Table(
    "tasks",
    metadata,
    key("id"),
    text("job"),
    number("segment"),
    sa.Column("position", Text, nullable=False),
    text("pool"),
    text("priority"),
    maybe("staged"),
    number("row_group"),
    text("ranges"),
    number("rows"),
    number("est_input_tokens"),
    number("est_output_tokens"),
    text("state"),
    number("epoch"),
    maybe("ticket"),
    maybe("token"),
    maybe("owner"),
    maybe("lease_until", sa.Double),
    flag("suspect"),
    number("alone_deaths"),
    maybe("void_reason"),
    maybe("parent"),
    maybe("usage"),
    maybe("progress"),
    sa.Index("tasks_pick", "job", "state", "position"),
    sa.Index("tasks_of_owner", "owner", **where("state = 'leased'")),
    sa.Index("tasks_leased", "pool", **where("state = 'leased'")),
)

reservations = sa.Table(
    "reservations",
    metadata,
    key("task"),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    text("job"),
    number("amount_pico"),
    text("state"),
    time("opened_at"),
    maybe("closed_at", sa.Double),
    sa.Index("reservations_open", "job", **where("state = 'open'")),
)

# One row for each task that is released now; it goes when the task is leased or withdrawn. Ids are never used again,
# so that a late `published` cannot mark another task's message.
outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("task", Text, nullable=False, unique=True),
    number("epoch"),
    text("ticket"),
    text("pool"),
    text("priority"),
    time("created_at"),
    maybe("published_at", sa.Double),
    maybe("topic"),
    maybe("topic_id"),
    maybe("partition", sa.Integer),
    maybe("log_offset", sa.BigInteger),
    sa.Index("outbox_pending", "pool", "id", **where("published_at IS NULL")),
    sqlite_autoincrement=True,
)

parts = sa.Table(
    "parts",
    metadata,
    key("task"),
    text("job"),
    sa.Column("position", Text, nullable=False),
    text("uri"),
    number("size"),
    text("checksum"),
    number("rows"),
    number("first_row"),
    number("last_row"),
    flag("ascending"),
    text("outcomes"),
    sa.Index("parts_in_order", "job", "position"),
)

wastes = sa.Table(
    "wastes",
    metadata,
    key("task"),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    key("cause"),
    text("job"),
    text("usage"),
    time("at"),
)

entries = sa.Table(
    "entries",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    text("txn"),
    number("line"),
    text("kind"),
    text("account"),
    number("amount_pico"),
    text("currency"),
    text("tenant"),
    text("project"),
    text("tags"),
    text("creator"),
    text("job"),
    text("task"),
    text("model"),
    text("price_version"),
    text("token_class"),
    number("tokens"),
    time("at"),
    sa.Index("entries_once", "txn", "line", unique=True),
    sa.Index("entries_of_job", "job", "id"),
    sa.Index("entries_of_tenant", "tenant", "at"),
    sqlite_autoincrement=True,
)

# What the folder has still to hear of. amount_pico: what the tenant pays; lines: entries of the transaction.
inbox = sa.Table(
    "inbox",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    text("txn"),
    text("kind"),
    text("job"),
    text("usage"),
    number("amount_pico"),
    number("lines"),
    sqlite_autoincrement=True,
)

blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("block", sa.BigInteger, primary_key=True, autoincrement=False),
    text("previous"),
    text("root"),
    number("transactions"),
    number("entries"),
    time("at"),
)

# Which transaction stands where in the chain; an entry's place is (block, position, line).
sealed = sa.Table(
    "sealed",
    metadata,
    sa.Column("block", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("txn", Text, nullable=False, unique=True),
)

balances = sa.Table(
    "balances", metadata, key("account"), key("currency"), sa.Column("amount_pico", Amount, nullable=False)
)

prices = sa.Table(
    "prices",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    text("model"),
    text("version"),
    text("price"),
    sa.Index("prices_once", "model", "version", unique=True),
    sqlite_autoincrement=True,
)

leaders = sa.Table("leaders", metadata, key("scope"), number("epoch"), text("owner"), time("at"))

speeds = sa.Table(
    "speeds",
    metadata,
    key("model"),
    sa.Column("rows_per_s", sa.Double, nullable=False),
    sa.Column("output_tokens_per_s", sa.Double, nullable=False),
    time("at"),
)

APPEND_ONLY = (entries, blocks, sealed)

STORAGE: dict[str, dict[str, float]] = {
    # Room in each page for the next versions of its rows: a beat then changes no index.
    "tasks": {"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01, "autovacuum_analyze_scale_factor": 0.02},
    # Queues: rows come and go, and what they leave behind lies where the next are looked for.
    "outbox": {"autovacuum_vacuum_scale_factor": 0.01},
    "inbox": {"autovacuum_vacuum_scale_factor": 0.01},
    # A few rows that change all the time: room for their next versions in the same page.
    "rate_state": {"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
    "slot_leases": {"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
}
"""How PostgreSQL keeps them."""
