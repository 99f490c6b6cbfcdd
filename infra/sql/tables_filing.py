"""The tables of tenants and what they file: keys, grants, aliases, the audit log, files, batches, answers to replay.

As in `tables.py`; the same metadata.
"""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql.columns import Serial, Text, flag, key, maybe, metadata, number, text, time, where

tenants = sa.Table(
    "tenants",
    metadata,
    key("name"),
    text("title"),
    maybe("enqueued_tokens_limit", sa.BigInteger),
    time("created_at"),
    maybe("disabled_at", sa.Double),
    maybe("requests_per_minute", sa.BigInteger),
    maybe("tokens_per_minute", sa.BigInteger),
    maybe("concurrent_requests", sa.BigInteger),
)

# Of its own: the counter changes with every batch, a tenant's record hardly ever.
quotas = sa.Table("quotas", metadata, key("tenant"), number("enqueued_tokens"))

api_keys = sa.Table(
    "api_keys",
    metadata,
    key("id"),
    text("tenant"),
    sa.Column("digest", Text, nullable=False, unique=True),
    text("shown"),
    text("name"),
    text("project"),
    text("role"),
    text("scopes"),
    time("created_at"),
    maybe("expires_at", sa.Double),
    maybe("revoked_at", sa.Double),
    maybe("replaces"),
    maybe("requests_per_minute", sa.BigInteger),
    maybe("tokens_per_minute", sa.BigInteger),
    maybe("concurrent_requests", sa.BigInteger),
    sa.Index("api_keys_newest", "created_at", "id"),
    sa.Index("api_keys_of_tenant", "tenant", "created_at", "id"),
)

grants = sa.Table("grants", metadata, key("tenant"), key("prefix"), flag("write"), time("created_at"))

# tenant: "" for all.
aliases = sa.Table("aliases", metadata, key("tenant"), key("alias"), text("model"))

audit_events = sa.Table(
    "audit_events",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    text("action"),
    text("actor"),
    text("tenant"),
    text("subject"),
    text("detail"),
    time("at"),
    sa.Index("audit_events_of_tenant", "tenant", "id"),
    sqlite_autoincrement=True,
)

# ends_at: the earlier of expires_at and deleted_at; from then on it is dead.
stored_files = sa.Table(
    "stored_files",
    metadata,
    key("id"),
    text("tenant"),
    text("purpose"),
    text("filename"),
    text("uri"),
    number("size"),
    text("checksum"),
    text("project"),
    text("creator"),
    maybe("batch"),
    time("created_at"),
    maybe("expires_at", sa.Double),
    maybe("deleted_at", sa.Double),
    maybe("ends_at", sa.Double),
    sa.Index("stored_files_of_tenant", "tenant", "created_at", "id"),
    sa.Index("stored_files_of_purpose", "tenant", "purpose", "created_at", "id"),
    sa.Index("stored_files_dead", "ends_at", "id", **where("ends_at IS NOT NULL")),
)

# record: the whole batch; the other columns are what it is looked up by. ended_at: its status is terminal.
batches = sa.Table(
    "batches",
    metadata,
    key("id"),
    text("tenant"),
    text("input_file"),
    number("version"),
    number("enqueued_tokens"),
    time("created_at"),
    maybe("ended_at", sa.Double),
    text("record"),
    sa.Index("batches_of_tenant", "tenant", "created_at", "id"),
    sa.Index("batches_open", "created_at", "id", **where("ended_at IS NULL")),
    sa.Index("batches_reading", "input_file", **where("ended_at IS NULL")),
)

# begun_at: by whoever has it now. status, body: the answer.
replays = sa.Table(
    "replays",
    metadata,
    key("tenant"),
    key("idempotency_key"),
    text("digest"),
    text("resource"),
    text("claim"),
    time("begun_at"),
    maybe("status", sa.Integer),
    maybe("body", sa.LargeBinary),
    sa.Index("replays_oldest", "begun_at"),
)
