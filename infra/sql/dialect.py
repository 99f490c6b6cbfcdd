"""All that differs between databases. PostgreSQL plugs in here and in `engine.py`; no other module names one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from jobs.ports.clock import Clock


def now(connection: sa.Connection, clock: Clock) -> float:
    """Seconds by the database's clock. SQLite has none of its own: it lives in this process, on this machine."""
    if connection.dialect.name == "sqlite":
        return clock.now()
    return float(connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())")) or 0.0)


def upsert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *, keys: Sequence[str]
) -> None:
    """Insert rows, or overwrite all other columns of those that are there."""
    if not rows:
        return
    insert: Any = sqlite_insert if connection.dialect.name == "sqlite" else postgresql_insert
    statement = insert(table)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=changed), list(rows))


def lock_ledger(connection: sa.Connection) -> None:
    """One folder at a time. On SQLite the transaction itself (`BEGIN IMMEDIATE`) is that lock."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.text("LOCK TABLE blocks IN EXCLUSIVE MODE"))


@contextmanager
def snapshot(connection: sa.Connection) -> Iterator[sa.Connection]:
    """Let all reads in the block see one state of the database."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")
        try:
            yield connection
        finally:
            connection.exec_driver_sql("ROLLBACK")
        return
    with connection.execution_options(isolation_level="REPEATABLE READ") as steady, steady.begin():
        yield steady


def append_only(dialect_name: str, table: str) -> list[str]:
    """Statements that make every UPDATE and DELETE of a table fail, for migrations."""
    says = f"{table} is append-only"
    if dialect_name == "sqlite":
        return [
            f"CREATE TRIGGER {table}_{what} BEFORE {what} ON {table} BEGIN SELECT RAISE(ABORT, '{says}'); END"
            for what in ("update", "delete")
        ]
    fails = f"BEGIN RAISE EXCEPTION '{says}' USING ERRCODE = 'integrity_constraint_violation'; END"
    when = f"BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
    return [
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ {fails} $$",
        f"CREATE TRIGGER {table}_append_only {when} FOR EACH STATEMENT EXECUTE FUNCTION {table}_append_only()",
    ]
