"""The database adapters: SQLAlchemy Core over SQLite and PostgreSQL."""

from infra.sql.postgres import PostgresPolicy
from infra.sql.store import SqlStore, open_store
from infra.sql.writer import AT_ONCE, Pace

__all__ = ["AT_ONCE", "Pace", "PostgresPolicy", "SqlStore", "open_store"]
