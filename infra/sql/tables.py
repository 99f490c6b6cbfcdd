"""The tables, as SQLAlchemy Core. `migrations/` makes them; a test holds the two equal.

There are no foreign keys: rows are never deleted once others point at them, and on PostgreSQL each insert would
share-lock the job's row, which the commit of a task must not touch. No column has a default: what a caller forgets
must fail. JSON is text written by `codec`: nothing in the database looks inside it. Times are seconds since the epoch.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Text that sorts by its bytes on every database, which is also the quicker way to look a key up."""

Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite numbers rows by itself only in a column called INTEGER; its integers have 64 bits all the same."""


class Amount(sa.TypeDecorator[int]):
    """A sum of pico-units, exact beyond 64 bits: decimal text on SQLite, NUMERIC on PostgreSQL."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        numeric: sa.types.TypeEngine[Any] = sa.Numeric(78, 0) if dialect.name == "postgresql" else sa.Text()
        return dialect.type_descriptor(numeric)

    def process_bind_param(self, value: int | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        return Decimal(value) if dialect.name == "postgresql" else str(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> int | None:  # noqa: ARG002  # the base's shape
        return None if value is None else int(value)


def _key(name: str) -> sa.Column[Any]:
    return sa.Column(name, Text, primary_key=True)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _text(name: str) -> sa.Column[Any]:
    return sa.Column(name, Text, nullable=False)


def _maybe(name: str, kind: Any = Text) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=True)


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=False)


def _where(text: str) -> dict[str, Any]:
    """A partial index: small, because few rows are in the state that is looked for."""
    return {"sqlite_where": sa.text(text), "postgresql_where": sa.text(text)}


def literal(value: str) -> sa.ColumnElement[str]:
    """A constant written into the statement: the planner takes a partial index only when it can read the value."""
    return sa.literal_column(f"'{value}'", sa.Text)


# manifest, void: of the finaliser, void being the usage of void tasks; sealed_at: `_SUCCESS` was there.
jobs = sa.Table(
    "jobs",
    metadata,
    _key("id"),
    _text("tenant"),
    _text("project"),
    _text("tags"),
    _text("creator"),
    _text("spec"),
    _text("price"),
    _text("pool"),
    _text("priority"),
    _text("state"),
    _text("reason"),
    _number("version"),
    _number("total_rows"),
    _number("next_segment"),
    _flag("planned"),
    _maybe("parent"),
    _maybe("idempotency_key"),
    _time("created_at"),
    _maybe("finished_at", sa.Double),
    _maybe("deadline_at", sa.Double),
    _maybe("manifest"),
    _maybe("void"),
    _maybe("sealed_at", sa.Double),
    sa.Index("jobs_unsealed", "created_at", "id", **_where("finished_at IS NOT NULL AND sealed_at IS NULL")),
    sa.Index("jobs_active", "pool", "created_at", "id", **_where("finished_at IS NULL")),
    sa.Index("jobs_newest", "created_at", "id"),
    sa.Index("jobs_of_tenant", "tenant", "created_at", "id"),
    sa.Index("jobs_of_parent", "parent", **_where("parent IS NOT NULL")),
    sa.Index("jobs_once", "tenant", "idempotency_key", unique=True, **_where("idempotency_key IS NOT NULL")),
)

# Written by the folder alone, so that it never waits for a job's row that a release has share-locked.
job_totals = sa.Table(
    "job_totals", metadata, _key("job"), _text("usage"), sa.Column("amount_pico", Amount, nullable=False)
)

input_files = sa.Table(
    "input_files",
    metadata,
    _key("job"),
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    _text("file"),
)

# position: planning order as text, "SEGMENT.NUMBER" with leading zeros, then ".NUMBER" for each child below.
# usage: of the commit; progress: what the present lease last reported. No index on lease_until: beats change it.
tasks = sa.Table(
    "tasks",
    metadata,
    _key("id"),
    _text("job"),
    _number("segment"),
    sa.Column("position", Text, nullable=False),
    _text("pool"),
    _text("priority"),
    _maybe("staged"),
    _number("row_group"),
    _text("ranges"),
    _number("rows"),
    _number("est_input_tokens"),
    _number("est_output_tokens"),
    _text("state"),
    _number("epoch"),
    _maybe("ticket"),
    _maybe("token"),
    _maybe("owner"),
    _maybe("lease_until", sa.Double),
    _flag("suspect"),
    _number("alone_deaths"),
    _maybe("void_reason"),
    _maybe("parent"),
    _maybe("usage"),
    _maybe("progress"),
    sa.Index("tasks_pick", "job", "state", "position"),
    sa.Index("tasks_of_owner", "owner", **_where("state = 'leased'")),
    sa.Index("tasks_leased", "pool", **_where("state = 'leased'")),
)

reservations = sa.Table(
    "reservations",
    metadata,
    _key("task"),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    _text("job"),
    _number("amount_pico"),
    _text("state"),
    _time("opened_at"),
    _maybe("closed_at", sa.Double),
    sa.Index("reservations_open", "job", **_where("state = 'open'")),
)

# One row for each task that is released now; it goes when the task is leased or withdrawn. Ids are never used again,
# so that a late `published` cannot mark another task's message.
outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("task", Text, nullable=False, unique=True),
    _number("epoch"),
    _text("ticket"),
    _text("pool"),
    _text("priority"),
    _time("created_at"),
    _maybe("published_at", sa.Double),
    _maybe("topic"),
    _maybe("topic_id"),
    _maybe("partition", sa.Integer),
    _maybe("log_offset", sa.BigInteger),
    sa.Index("outbox_pending", "pool", "id", **_where("published_at IS NULL")),
    sqlite_autoincrement=True,
)

parts = sa.Table(
    "parts",
    metadata,
    _key("task"),
    _text("job"),
    sa.Column("position", Text, nullable=False),
    _text("uri"),
    _number("size"),
    _text("checksum"),
    _number("rows"),
    _number("first_row"),
    _number("last_row"),
    _flag("ascending"),
    _text("outcomes"),
    sa.Index("parts_in_order", "job", "position"),
)

wastes = sa.Table(
    "wastes",
    metadata,
    _key("task"),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    _key("cause"),
    _text("job"),
    _text("usage"),
    _time("at"),
)

entries = sa.Table(
    "entries",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    _text("txn"),
    _number("line"),
    _text("kind"),
    _text("account"),
    _number("amount_pico"),
    _text("currency"),
    _text("tenant"),
    _text("project"),
    _text("tags"),
    _text("creator"),
    _text("job"),
    _text("task"),
    _text("model"),
    _text("price_version"),
    _text("token_class"),
    _number("tokens"),
    _time("at"),
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
    _text("txn"),
    _text("kind"),
    _text("job"),
    _text("usage"),
    _number("amount_pico"),
    _number("lines"),
    sqlite_autoincrement=True,
)

blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("block", sa.BigInteger, primary_key=True, autoincrement=False),
    _text("previous"),
    _text("root"),
    _number("transactions"),
    _number("entries"),
    _time("at"),
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
    "balances", metadata, _key("account"), _key("currency"), sa.Column("amount_pico", Amount, nullable=False)
)

prices = sa.Table(
    "prices",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    _text("model"),
    _text("version"),
    _text("price"),
    sa.Index("prices_once", "model", "version", unique=True),
    sqlite_autoincrement=True,
)

leaders = sa.Table("leaders", metadata, _key("scope"), _number("epoch"), _text("owner"), _time("at"))

speeds = sa.Table(
    "speeds",
    metadata,
    _key("model"),
    sa.Column("rows_per_s", sa.Double, nullable=False),
    sa.Column("output_tokens_per_s", sa.Double, nullable=False),
    _time("at"),
)

APPEND_ONLY = (entries, blocks, sealed)

STORAGE: dict[str, dict[str, float]] = {
    # Room in each page for the next versions of its rows: a beat then changes no index.
    "tasks": {"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01, "autovacuum_analyze_scale_factor": 0.02},
    # Queues: rows come and go, and what they leave behind lies where the next are looked for.
    "outbox": {"autovacuum_vacuum_scale_factor": 0.01},
    "inbox": {"autovacuum_vacuum_scale_factor": 0.01},
}
"""How PostgreSQL keeps them."""
