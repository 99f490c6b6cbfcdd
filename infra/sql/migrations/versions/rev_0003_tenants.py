"""Tenants and what they file: keys, grants, aliases, the audit log, files, batches, answers to replay."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from infra.sql.dialect import append_only

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "aliases",
        sa.Column("tenant", Text, nullable=False),
        sa.Column("alias", Text, nullable=False),
        sa.Column("model", Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "alias"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("digest", Text, nullable=False),
        sa.Column("shown", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("project", Text, nullable=False),
        sa.Column("role", Text, nullable=False),
        sa.Column("scopes", Text, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("replaces", Text, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index("api_keys_newest", "api_keys", ["created_at", "id"], unique=False)
    op.create_index("api_keys_of_tenant", "api_keys", ["tenant", "created_at", "id"], unique=False)
    op.create_table(
        "audit_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("action", Text, nullable=False),
        sa.Column("actor", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("subject", Text, nullable=False),
        sa.Column("detail", Text, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_events_of_tenant", "audit_events", ["tenant", "id"], unique=False)
    op.create_table(
        "batches",
        sa.Column("id", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("input_file", Text, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("enqueued_tokens", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("record", Text, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("batches_of_tenant", "batches", ["tenant", "created_at", "id"], unique=False)
    op.create_index(
        "batches_open",
        "batches",
        ["created_at", "id"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "batches_reading",
        "batches",
        ["input_file"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "grants",
        sa.Column("tenant", Text, nullable=False),
        sa.Column("prefix", Text, nullable=False),
        sa.Column("write", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "prefix"),
    )
    op.create_table(
        "quotas",
        sa.Column("tenant", Text, nullable=False),
        sa.Column("enqueued_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant"),
    )
    op.create_table(
        "replays",
        sa.Column("tenant", Text, nullable=False),
        sa.Column("idempotency_key", Text, nullable=False),
        sa.Column("digest", Text, nullable=False),
        sa.Column("resource", Text, nullable=False),
        sa.Column("claim", Text, nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "idempotency_key"),
    )
    op.create_index("replays_oldest", "replays", ["begun_at"], unique=False)
    op.create_table(
        "stored_files",
        sa.Column("id", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("purpose", Text, nullable=False),
        sa.Column("filename", Text, nullable=False),
        sa.Column("uri", Text, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("checksum", Text, nullable=False),
        sa.Column("project", Text, nullable=False),
        sa.Column("creator", Text, nullable=False),
        sa.Column("batch", Text, nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("ends_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "stored_files_dead",
        "stored_files",
        ["ends_at", "id"],
        unique=False,
        sqlite_where=sa.text("ends_at IS NOT NULL"),
        postgresql_where=sa.text("ends_at IS NOT NULL"),
    )
    op.create_index("stored_files_of_purpose", "stored_files", ["tenant", "purpose", "created_at", "id"], unique=False)
    op.create_index("stored_files_of_tenant", "stored_files", ["tenant", "created_at", "id"], unique=False)
    op.create_table(
        "tenants",
        sa.Column("name", Text, nullable=False),
        sa.Column("title", Text, nullable=False),
        sa.Column("enqueued_tokens_limit", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("disabled_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    for statement in append_only(op.get_bind().dialect.name, "audit_events"):
        op.execute(statement)
