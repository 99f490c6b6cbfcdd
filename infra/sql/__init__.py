"""The database adapters: SQLAlchemy Core over SQLite, ready for PostgreSQL."""

from infra.sql.store import SqlStore, open_store
from infra.sql.writer import AT_ONCE, Pace

__all__ = ["AT_ONCE", "Pace", "SqlStore", "open_store"]
