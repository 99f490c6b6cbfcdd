"""All that differs between databases, but for their connections (`engine.py`, `postgres.py`).

On PostgreSQL transactions are READ COMMITTED and run side by side: what one reads in order to decide it locks first, in
the order of the rows' keys, or writes again into the condition of its UPDATE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from jobs.ports.clock import Clock

# Keys of advisory locks, which PostgreSQL knows only by number: the first letters of their names.
_FOLDER = int.from_bytes(b"nm-fold", "big")
_MIGRATION = int.from_bytes(b"nm-migr", "big")


def is_sqlite(connection: sa.Connection) -> bool:
    """Whether it is the database in a file."""
    return connection.dialect.name == "sqlite"


def now(connection: sa.Connection, clock: Clock) -> float:
    """Seconds by the database's clock. SQLite has none of its own: it lives in this process, on this machine.

    `clock_timestamp()`, since `now()` is when the transaction began: a lease would begin before the wait for its row.
    """
    if is_sqlite(connection):
        return clock.now()
    return float(connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())")) or 0.0)


# ---- statements ---------------------------------------------------------------------------------


def upsert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *, keys: Sequence[str]
) -> None:
    """Insert rows, or overwrite all other columns of those that are there."""
    if not rows:
        return
    connection.execute(_upsert(connection.dialect.name, table, tuple(rows[0]), tuple(keys)), list(rows))


def insert_new(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Insert a row; False if one of its unique keys is taken, for certain: another's transaction is waited for."""
    return connection.execute(_insert_new(connection.dialect.name, table), row).first() is not None


def insert_all_new(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> set[Any]:
    """As `insert_new` for each row, by one statement; the keys of those that were inserted. Its key is one column."""
    if not rows:
        return set()
    return {key for (key,) in connection.execute(_insert_new(connection.dialect.name, table), list(rows))}


def insert(connection: sa.Connection, table: sa.Table) -> Any:
    """An INSERT that can say ON CONFLICT, which both databases write alike."""
    return insert_of(connection.dialect.name, table)


def insert_of(dialect_name: str, table: sa.Table) -> Any:
    """As `insert`, where no connection is at hand."""
    return sqlite_insert(table) if dialect_name == "sqlite" else postgresql_insert(table)


@cache
def _insert_new(dialect_name: str, table: sa.Table) -> Any:
    """Made once: to build a statement takes longer than to carry it out."""
    return insert_of(dialect_name, table).on_conflict_do_nothing().returning(*table.primary_key)


@cache
def _upsert(dialect_name: str, table: sa.Table, columns: tuple[str, ...], keys: tuple[str, ...]) -> Any:
    statement = insert_of(dialect_name, table)
    changed = {name: statement.excluded[name] for name in columns if name not in keys}
    return statement.on_conflict_do_update(index_elements=list(keys), set_=changed)


def among(connection: sa.Connection, column: sa.ColumnElement[Any], names: Sequence[Any]) -> sa.ColumnElement[bool]:
    """`column` is one of `names`. As one array on PostgreSQL: a list would be another statement for each length, and
    each would be planned anew.
    """
    if is_sqlite(connection):
        return column.in_(sa.bindparam(None, list(names), type_=column.type, expanding=True))
    return column == sa.any_(sa.literal(list(names), postgresql.ARRAY(column.type)))


# ---- locks --------------------------------------------------------------------------------------


def lock_ledger(connection: sa.Connection) -> None:
    """One folder at a time. On SQLite the transaction itself (`BEGIN IMMEDIATE`) is that lock."""
    _lock(connection, _FOLDER)


def lock_schema(connection: sa.Connection) -> None:
    """One migration at a time. On SQLite a file lock is that lock: its WAL mode is set outside any transaction."""
    _lock(connection, _MIGRATION)


def _lock(connection: sa.Connection, key: int) -> None:
    if not is_sqlite(connection):
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


@contextmanager
def snapshot(connection: sa.Connection) -> Iterator[sa.Connection]:
    """Let all reads in the block see one state of the database."""
    if is_sqlite(connection):
        connection.exec_driver_sql("BEGIN")
        try:
            yield connection
        finally:
            connection.exec_driver_sql("ROLLBACK")
        return
    with connection.execution_options(isolation_level="REPEATABLE READ") as steady, steady.begin():
        # A whole book may take its time, and is better read through than looked up row by row.
        steady.exec_driver_sql("SET LOCAL statement_timeout = 0")
        steady.exec_driver_sql("SET LOCAL enable_seqscan = on")
        yield steady


# ---- migrations ---------------------------------------------------------------------------------


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


def storage(dialect_name: str, table: str, options: Mapping[str, Any]) -> list[str]:
    """Statements that set how PostgreSQL keeps a table, for migrations."""
    if dialect_name == "sqlite":
        return []
    text = ", ".join(f"{name} = {value}" for name, value in options.items())
    return [f"ALTER TABLE {table} SET ({text})"]
