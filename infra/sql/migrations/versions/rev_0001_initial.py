"""All tables of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from infra.sql.dialect import append_only, storage

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
STORAGE = {
    "tasks": {"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01, "autovacuum_analyze_scale_factor": 0.02},
    "outbox": {"autovacuum_vacuum_scale_factor": 0.01},
    "inbox": {"autovacuum_vacuum_scale_factor": 0.01},
}


def upgrade() -> None:
    op.create_table(
        "balances",
        sa.Column("account", Text, nullable=False),
        sa.Column("currency", Text, nullable=False),
        sa.Column("amount_pico", sa.Text().with_variant(sa.Numeric(78, 0), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("account", "currency"),
    )
    op.create_table(
        "blocks",
        sa.Column("block", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("previous", Text, nullable=False),
        sa.Column("root", Text, nullable=False),
        sa.Column("transactions", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("block"),
    )
    op.create_table(
        "entries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("txn", Text, nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("account", Text, nullable=False),
        sa.Column("amount_pico", sa.BigInteger(), nullable=False),
        sa.Column("currency", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("project", Text, nullable=False),
        sa.Column("tags", Text, nullable=False),
        sa.Column("creator", Text, nullable=False),
        sa.Column("job", Text, nullable=False),
        sa.Column("task", Text, nullable=False),
        sa.Column("model", Text, nullable=False),
        sa.Column("price_version", Text, nullable=False),
        sa.Column("token_class", Text, nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("entries_of_job", "entries", ["job", "id"], unique=False)
    op.create_index("entries_of_tenant", "entries", ["tenant", "at"], unique=False)
    op.create_index("entries_once", "entries", ["txn", "line"], unique=True)
    op.create_table(
        "inbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("txn", Text, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("job", Text, nullable=False),
        sa.Column("usage", Text, nullable=False),
        sa.Column("amount_pico", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "input_files",
        sa.Column("job", Text, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("file", Text, nullable=False),
        sa.PrimaryKeyConstraint("job", "place"),
    )
    op.create_table(
        "job_totals",
        sa.Column("job", Text, nullable=False),
        sa.Column("usage", Text, nullable=False),
        sa.Column("amount_pico", sa.Text().with_variant(sa.Numeric(78, 0), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("job"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("project", Text, nullable=False),
        sa.Column("tags", Text, nullable=False),
        sa.Column("creator", Text, nullable=False),
        sa.Column("spec", Text, nullable=False),
        sa.Column("price", Text, nullable=False),
        sa.Column("pool", Text, nullable=False),
        sa.Column("priority", Text, nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("reason", Text, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("total_rows", sa.BigInteger(), nullable=False),
        sa.Column("next_segment", sa.BigInteger(), nullable=False),
        sa.Column("planned", sa.Boolean(), nullable=False),
        sa.Column("parent", Text, nullable=True),
        sa.Column("idempotency_key", Text, nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("deadline_at", sa.Double(), nullable=True),
        sa.Column("manifest", Text, nullable=True),
        sa.Column("void", Text, nullable=True),
        sa.Column("sealed_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "jobs_active",
        "jobs",
        ["pool", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_index("jobs_newest", "jobs", ["created_at", "id"], unique=False)
    op.create_index(
        "jobs_of_parent",
        "jobs",
        ["parent"],
        unique=False,
        sqlite_where=sa.text("parent IS NOT NULL"),
        postgresql_where=sa.text("parent IS NOT NULL"),
    )
    op.create_index("jobs_of_tenant", "jobs", ["tenant", "created_at", "id"], unique=False)
    op.create_index(
        "jobs_once",
        "jobs",
        ["tenant", "idempotency_key"],
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "jobs_unsealed",
        "jobs",
        ["created_at", "id"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NOT NULL AND sealed_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NOT NULL AND sealed_at IS NULL"),
    )
    op.create_table(
        "leaders",
        sa.Column("scope", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", Text, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("scope"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("ticket", Text, nullable=False),
        sa.Column("pool", Text, nullable=False),
        sa.Column("priority", Text, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("published_at", sa.Double(), nullable=True),
        sa.Column("topic", Text, nullable=True),
        sa.Column("topic_id", Text, nullable=True),
        sa.Column("partition", sa.Integer(), nullable=True),
        sa.Column("log_offset", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("task"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "outbox_pending",
        "outbox",
        ["pool", "id"],
        unique=False,
        sqlite_where=sa.text("published_at IS NULL"),
        postgresql_where=sa.text("published_at IS NULL"),
    )
    op.create_table(
        "parts",
        sa.Column("task", Text, nullable=False),
        sa.Column("job", Text, nullable=False),
        sa.Column("position", Text, nullable=False),
        sa.Column("uri", Text, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("checksum", Text, nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), nullable=False),
        sa.Column("last_row", sa.BigInteger(), nullable=False),
        sa.Column("ascending", sa.Boolean(), nullable=False),
        sa.Column("outcomes", Text, nullable=False),
        sa.PrimaryKeyConstraint("task"),
    )
    op.create_index("parts_in_order", "parts", ["job", "position"], unique=False)
    op.create_table(
        "prices",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("model", Text, nullable=False),
        sa.Column("version", Text, nullable=False),
        sa.Column("price", Text, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("prices_once", "prices", ["model", "version"], unique=True)
    op.create_table(
        "reservations",
        sa.Column("task", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job", Text, nullable=False),
        sa.Column("amount_pico", sa.BigInteger(), nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("task", "epoch"),
    )
    op.create_index(
        "reservations_open",
        "reservations",
        ["job"],
        unique=False,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_table(
        "sealed",
        sa.Column("block", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("txn", Text, nullable=False),
        sa.PrimaryKeyConstraint("block", "position"),
        sa.UniqueConstraint("txn"),
    )
    op.create_table(
        "speeds",
        sa.Column("model", Text, nullable=False),
        sa.Column("rows_per_s", sa.Double(), nullable=False),
        sa.Column("output_tokens_per_s", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("model"),
    )
    op.create_table(
        "tasks",
        sa.Column("id", Text, nullable=False),
        sa.Column("job", Text, nullable=False),
        sa.Column("segment", sa.BigInteger(), nullable=False),
        sa.Column("position", Text, nullable=False),
        sa.Column("pool", Text, nullable=False),
        sa.Column("priority", Text, nullable=False),
        sa.Column("staged", Text, nullable=True),
        sa.Column("row_group", sa.BigInteger(), nullable=False),
        sa.Column("ranges", Text, nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("est_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("est_output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("ticket", Text, nullable=True),
        sa.Column("token", Text, nullable=True),
        sa.Column("owner", Text, nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("suspect", sa.Boolean(), nullable=False),
        sa.Column("alone_deaths", sa.BigInteger(), nullable=False),
        sa.Column("void_reason", Text, nullable=True),
        sa.Column("parent", Text, nullable=True),
        sa.Column("usage", Text, nullable=True),
        sa.Column("progress", Text, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "tasks_leased",
        "tasks",
        ["pool"],
        unique=False,
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.create_index(
        "tasks_of_owner",
        "tasks",
        ["owner"],
        unique=False,
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.create_index("tasks_pick", "tasks", ["job", "state", "position"], unique=False)
    op.create_table(
        "wastes",
        sa.Column("task", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cause", Text, nullable=False),
        sa.Column("job", Text, nullable=False),
        sa.Column("usage", Text, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("task", "epoch", "cause"),
    )
    on = op.get_bind().dialect.name
    statements = [statement for table in ("entries", "blocks", "sealed") for statement in append_only(on, table)]
    statements += [statement for table, options in STORAGE.items() for statement in storage(on, table, options)]
    for statement in statements:
        op.execute(statement)
