"""The store: all parts over one database."""

from __future__ import annotations

from pathlib import Path

from infra.clocks import SystemClock
from infra.sql import postgres, schema
from infra.sql.batchstore import SqlBatches
from infra.sql.blobs import SqlObjects
from infra.sql.censusstore import SqlCensus
from infra.sql.engine import Database, sqlite_database
from infra.sql.filestore import SqlFiles
from infra.sql.fleetstore import SqlFleet
from infra.sql.grantstore import SqlGrants
from infra.sql.jobstore import SqlJobs
from infra.sql.keystore import SqlKeys
from infra.sql.ledgerstore import SqlLedger
from infra.sql.outboxstore import SqlOutbox
from infra.sql.postgres import PostgresDatabase, PostgresPolicy
from infra.sql.pricestore import SqlPrices
from infra.sql.ratestore import SqlRates
from infra.sql.replaystore import SqlReplays
from infra.sql.requeststore import SqlRequests
from infra.sql.sweepstore import SqlSweep
from infra.sql.taskstore import SqlTasks
from infra.sql.tenantstore import SqlTenants
from infra.sql.trail import SqlTrail
from infra.sql.webhookstore import SqlWebhooks
from infra.sql.writer import Pace
from jobs.errors import DatabaseUnavailable
from jobs.ports.clock import Clock

FILE = "nightmill.db"


class SqlTenancy(SqlTenants, SqlKeys, SqlGrants, SqlTrail):
    """`jobs.ports.tenancy.TenantStore`."""


class SqlFiling(SqlFiles, SqlBatches, SqlReplays):
    """`jobs.ports.filing.FilingStore`."""


class SqlStore(
    SqlJobs,
    SqlTasks,
    SqlOutbox,
    SqlLedger,
    SqlRequests,
    SqlRates,
    SqlPrices,
    SqlFleet,
    SqlSweep,
    SqlCensus,
    SqlTenancy,
    SqlFiling,
    SqlWebhooks,
):
    """`jobs.ports.store.Store`. May be used from any thread; not across a fork."""

    def now(self) -> float:
        return self._db.time()

    def objects(self, scratch: Path) -> SqlObjects:
        """The small objects that lie in the same database. scratch: a local folder."""
        return SqlObjects(self._db, scratch)

    def close(self) -> None:
        self._db.close()


def open_store(
    where: Path | str,
    *,
    clock: Clock | None = None,
    pace: Pace | None = None,
    policy: PostgresPolicy | None = None,
) -> SqlStore:
    """The store in a data directory or at a URL of PostgreSQL, made or brought up to date if need be.

    Raises DatabaseUnavailable where it cannot be reached or made, DatabaseNewer where a later release wrote it and
    DatabaseUnfit where it cannot serve. clock: of SQLite, and of waits; a server has its own.
    """
    clock = clock or SystemClock()
    if isinstance(where, Path):
        return SqlStore(_sqlite(where, clock, pace or Pace()))
    return SqlStore(_server(where, clock, pace, policy or PostgresPolicy()))


def _sqlite(home: Path, clock: Clock, pace: Pace) -> Database:
    path = home / FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(where=str(path), reason=str(error)) from error
    schema.prepare(path)
    return sqlite_database(path, clock=clock, pace=pace)


def _server(text: str, clock: Clock, pace: Pace | None, policy: PostgresPolicy) -> Database:
    url = postgres.parse(text)
    where, engine = postgres.shown(url), postgres.connect(url, policy)
    try:
        schema.prepare_server(engine, where)
    except BaseException:
        engine.dispose()
        raise
    return PostgresDatabase(engine, where=where, clock=clock, pace=pace or postgres.PARALLEL, policy=policy)
