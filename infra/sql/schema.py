"""Brings a database to the revision that this code knows. Alembic is loaded only when there is something to do."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from infra.locks import FileLock
from infra.sql import dialect
from infra.sql.engine import make_wal, sqlite_reader, sqlite_writer
from infra.sql.faults import DatabaseNewer, DatabaseUnfit, translated

HEAD = "0006"
"""Alembic's newest revision; a test holds that. Comparing with it costs a millisecond, loading alembic 300."""

MIGRATIONS = Path(__file__).parent / "migrations"


def prepare(path: Path) -> None:
    """Create the database file or bring it up to date; one process does it while the others wait."""
    with translated(str(path)):
        if path.exists() and _state(path) == (HEAD, "wal"):
            return
        with FileLock(path.with_name(f"{path.name}.migrate.lock"), wait=True):
            _upgrade(path)


def prepare_server(engine: sa.Engine, where: str) -> None:
    """Make the tables in a server's database or bring them up to date; one client does it while the others wait."""
    with translated(where):
        with engine.connect() as connection:
            if revision(connection) == HEAD:
                return
        with engine.begin() as connection:
            for timeout in ("statement_timeout", "lock_timeout"):  # a migration may rewrite a table
                connection.exec_driver_sql(f"SET LOCAL {timeout} = 0")
            _check_encoding(connection, where)
            dialect.lock_schema(connection)
            migrate(connection, where)


def _check_encoding(connection: sa.Connection, where: str) -> None:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise DatabaseUnfit(where=where, reason=f"its encoding is {encoding}; make one with ENCODING 'UTF8'")


def _upgrade(path: Path) -> None:
    make_wal(path)
    engine = sqlite_writer(path)
    try:
        with engine.begin() as connection:
            migrate(connection, str(path))
    finally:
        engine.dispose()


def migrate(connection: sa.Connection, where: str) -> None:
    """Run what migrations are missing in the connection's transaction. Raises DatabaseNewer for an unknown one."""
    from alembic import command  # noqa: PLC0415  # 300 ms that only a migration is worth
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise DatabaseNewer(where=where, revision=revision(connection)) from error


def _state(path: Path) -> tuple[str | None, str]:
    """(revision, journal mode): a copy made by `VACUUM INTO` comes back in another mode."""
    engine = sqlite_reader(path)
    try:
        with engine.connect() as connection:
            return revision(connection), str(connection.exec_driver_sql("PRAGMA journal_mode").scalar())
    finally:
        engine.dispose()


def revision(connection: sa.Connection) -> str | None:
    """What the database is at; None where there are no tables of ours."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar())
