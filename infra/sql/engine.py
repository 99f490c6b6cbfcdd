"""Connections: how a store reads and writes, and how SQLite is set up for it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool, StaticPool

from infra.sql import dialect
from infra.sql.faults import translated
from infra.sql.tidying import Tidier
from infra.sql.writer import Pace, Writer
from jobs.errors import DatabaseUnavailable
from jobs.ports.clock import Clock

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

_LOCK_S, _TRY_MS = 30.0, 1
PRAGMAS = (
    f"PRAGMA busy_timeout = {1000 * _LOCK_S:.0f}",  # milliseconds; first, since the others may have to wait
    "PRAGMA synchronous = FULL",  # a commit survives a power cut
    "PRAGMA wal_autocheckpoint = 1000",  # pages
    "PRAGMA recursive_triggers = ON",  # else INSERT OR REPLACE deletes past the append-only triggers
    "PRAGMA cache_size = -4000",  # KiB a connection, of which there are many
)
_READERS = 64
"""Connections that are kept. To open one costs ten reads, and an API's threads, keepers and planners all read."""


class Database:
    """Reads see a snapshot a statement and hold nothing open; writes go through one group committer.

    tidier: is told of commits, where there is something to tidy up after them.
    """

    def __init__(
        self,
        *,
        reader: sa.Engine,
        writer: sa.Engine,
        where: str,
        clock: Clock,
        pace: Pace,
        tidier: Tidier | None = None,
    ) -> None:
        self._reader = reader
        self._engine = writer
        self._clock = clock
        self._writer = Writer(self._transact, pace)
        self._tidier = tidier
        self.where = where
        self.pace = pace

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection that commits by itself; errors come out in our words."""
        with translated(self.where), self._reader.connect() as connection:
            yield connection

    def ask(self, work: Callable[[sa.Connection], T]) -> T:
        """What `work` reads, on a connection that commits by itself. It may run twice."""
        with self.read() as connection:
            return work(connection)

    def survey(self, work: Callable[[sa.Connection], T]) -> T:
        """As `ask`, but all statements see one state. It holds back the cleaning up: only for whole-book checks."""

        def look(connection: sa.Connection) -> T:
            with dialect.snapshot(connection) as steady:
                return work(steady)

        return self.ask(look)

    def connect(self) -> sa.Connection:
        """A reading connection to keep; whoever takes it closes it and translates its errors."""
        with translated(self.where):
            return self._reader.connect()

    def write(self, work: Callable[[sa.Connection], T], *, linger_s: float | None = None, durable: bool = True) -> T:
        """The result of `work`, carried out in a transaction. It may run twice. durable: not to be lost with the power.

        SQLite gathers what waits (`Writer.run`) and flushes it together, so there a lesser promise would save nothing.
        """
        del durable
        return self._writer.run(work, linger_s=linger_s)

    def write_all(
        self, work: Callable[[sa.Connection, list[A]], list[B]], items: Sequence[A], *, linger_s: float | None = None
    ) -> list[B]:
        """A result for each item, carried out with whatever else waits for the same `work`. See `Writer.run_all`."""
        return self._writer.run_all(work, items, linger_s=linger_s)

    def write_list(self, work: Callable[[sa.Connection, list[A]], list[B]], items: Sequence[A]) -> list[B]:
        """As `write_all`, for work that locks rows which others share: where several transactions go on at a time it
        has one to itself.
        """
        return self.write_all(work, items)

    def now(self, connection: sa.Connection) -> float:
        return dialect.now(connection, self._clock)

    def time(self) -> float:
        """As `now`, where no connection is at hand."""
        return self._clock.now()

    def close(self) -> None:
        self._writer.close()
        if self._tidier is not None:
            self._tidier.close()
        self._reader.dispose()
        self._engine.dispose()

    def _transact(self, work: Callable[[sa.Connection], T]) -> T:
        with translated(self.where), self._engine.begin() as connection:
            result = work(connection)
        if self._tidier is not None:
            self._tidier.stir()
        return result


def sqlite_database(path: Path, *, clock: Clock, pace: Pace) -> Database:
    """A database file that is there already, in WAL mode."""
    reader = sqlite_reader(path)
    return Database(
        reader=reader,
        tidier=Tidier(reader),
        writer=sqlite_writer(path),
        where=str(path),
        clock=clock,
        pace=pace,
    )


def sqlite_reader(path: Path) -> sa.Engine:
    """An engine whose connections open no transaction: each statement sees its own snapshot and takes no lock."""
    alone: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
    return _engine(path, QueuePool, pool_size=_READERS, max_overflow=-1, **alone)


def sqlite_writer(path: Path) -> sa.Engine:
    """An engine with one connection whose transactions take the write lock at their start.

    A deferred transaction that reads and then writes fails at once when another process wrote in between, whatever
    the busy time-out.
    """
    engine = _engine(path, StaticPool)
    sa.event.listen(engine, "connect", lambda connection, _: connection.execute(f"PRAGMA busy_timeout = {_TRY_MS}"))
    sa.event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: sa.Connection) -> None:
    """Take the write lock, trying every millisecond: SQLite itself would sleep up to 25 between two tries, of which
    another process's commit takes five.
    """
    raw: Any = connection.connection.dbapi_connection
    until = time.monotonic() + _LOCK_S
    while time.monotonic() < until:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                break
        else:
            return
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # raises as all statements do


def make_wal(path: Path) -> None:
    """Turn a new file to WAL mode, which is written into it. Later that would need everybody else to be out."""
    engine = sqlite_reader(path)
    try:
        with engine.connect() as connection:
            mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar()
    finally:
        engine.dispose()
    if mode != "wal":
        raise DatabaseUnavailable(where=str(path), reason=f"its file system allows only journal mode {mode}")


def pragma_of(path: Path, name: str) -> Any:
    """One value of a database file."""
    engine = sqlite_reader(path)
    try:
        with engine.connect() as connection:
            return connection.exec_driver_sql(f"PRAGMA {name}").scalar()
    finally:
        engine.dispose()


def _engine(path: Path, pool: type[sa.Pool], **options: Any) -> sa.Engine:
    url = sa.URL.create("sqlite", database=str(path))
    engine = sa.create_engine(
        url, poolclass=pool, connect_args={"check_same_thread": False}, hide_parameters=True, **options
    )
    sa.event.listen(engine, "connect", _set_up)
    return engine


def _set_up(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # no BEGIN behind our back
    for pragma in PRAGMAS:
        connection.execute(pragma)
