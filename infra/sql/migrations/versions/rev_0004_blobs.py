"""Small objects in the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("uri", Text, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("stamp", Text, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("uri"),
    )
