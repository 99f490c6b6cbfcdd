"""Webhooks, and what is to be delivered to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("url", Text, nullable=False),
        sa.Column("sealed", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("events", Text, nullable=False),
        sa.Column("standing", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "webhooks_standing",
        "webhooks",
        ["tenant", "standing", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", Text, nullable=False),
        sa.Column("webhook", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("subject", Text, nullable=False),
        sa.Column("event", Text, nullable=False),
        sa.Column("body", Text, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("outcome", Text, nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("reason", Text, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("deliveries_once", "deliveries", ["webhook", "subject"], unique=True)
    op.create_index(
        "deliveries_due",
        "deliveries",
        ["next_at", "id"],
        unique=False,
        sqlite_where=sa.text("next_at IS NOT NULL"),
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
    op.create_index("deliveries_of_tenant", "deliveries", ["tenant", "created_at", "id"], unique=False)
    op.create_index("deliveries_newest", "deliveries", ["created_at", "id"], unique=False)
