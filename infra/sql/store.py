"""The store: all parts over one database."""

from __future__ import annotations

from pathlib import Path

from infra.clocks import SystemClock
from infra.sql import schema
from infra.sql.engine import sqlite_database
from infra.sql.fleetstore import SqlFleet
from infra.sql.jobstore import SqlJobs
from infra.sql.ledgerstore import SqlLedger
from infra.sql.outboxstore import SqlOutbox
from infra.sql.pricestore import SqlPrices
from infra.sql.taskstore import SqlTasks
from infra.sql.writer import Pace
from jobs.errors import DatabaseUnavailable
from jobs.ports.clock import Clock

FILE = "nightmill.db"


class SqlStore(SqlJobs, SqlTasks, SqlOutbox, SqlLedger, SqlPrices, SqlFleet):
    """`jobs.ports.store.Store`. May be used from any thread; not across a fork."""

    def now(self) -> float:
        with self._db.read() as connection:
            return self._db.now(connection)

    def close(self) -> None:
        self._db.close()


def open_store(home: Path, *, clock: Clock | None = None, pace: Pace | None = None) -> SqlStore:
    """The store in a data directory, made or brought up to date if need be.

    Raises DatabaseUnavailable where the directory cannot be used, DatabaseNewer for one that a later release wrote.
    """
    path = home / FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(where=str(path), reason=str(error)) from error
    schema.prepare(path)
    return SqlStore(sqlite_database(path, clock=clock or SystemClock(), pace=pace or Pace()))
