"""Interactive requests, the state of rate limits, and the limits of tenants and keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from infra.sql.dialect import storage

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
STORAGE = {
    "rate_state": {"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
    "slot_leases": {"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
}


def upgrade() -> None:
    op.create_table(
        "requests",
        sa.Column("id", Text, nullable=False),
        sa.Column("tenant", Text, nullable=False),
        sa.Column("project", Text, nullable=False),
        sa.Column("tags", Text, nullable=False),
        sa.Column("creator", Text, nullable=False),
        sa.Column("model", Text, nullable=False),
        sa.Column("asked_model", Text, nullable=False),
        sa.Column("endpoint", Text, nullable=False),
        sa.Column("pool", Text, nullable=False),
        sa.Column("worker", Text, nullable=False),
        sa.Column("price", Text, nullable=False),
        sa.Column("usage", Text, nullable=False),
        sa.Column("outcome", Text, nullable=False),
        sa.Column("first_token_s", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "rate_state",
        sa.Column("scope", Text, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("tat_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "kind"),
    )
    op.create_table(
        "slot_leases",
        sa.Column("scope", Text, nullable=False),
        sa.Column("holder", Text, nullable=False),
        sa.Column("slots", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "holder"),
    )
    for table in ("tenants", "api_keys"):
        for limit in ("requests_per_minute", "tokens_per_minute", "concurrent_requests"):
            op.add_column(table, sa.Column(limit, sa.BigInteger(), nullable=True))
    on = op.get_bind().dialect.name
    for table, options in STORAGE.items():
        for statement in storage(on, table, options):
            op.execute(statement)
