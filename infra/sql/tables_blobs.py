"""The table of small objects; see `blobs.py`. The same metadata as `tables.py`."""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql.columns import key, metadata, number, text

blobs = sa.Table(
    "blobs", metadata, key("uri"), number("size"), text("stamp"), sa.Column("data", sa.LargeBinary, nullable=False)
)
