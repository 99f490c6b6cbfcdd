"""Connections to PostgreSQL: how they are made and bounded, and what is done when one is lost.

Moves of tasks and postings of requests go through a group committer with several connections; every other write, lists
among them, is a transaction of its own in its caller's thread, so that no group locks in an order that depends on who
came first. PostgreSQL itself flushes the commits of neighbours together.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
import structlog

from infra.sql.engine import Database
from infra.sql.faults import DatabaseUnfit, is_read_only, passes
from infra.sql.writer import Pace
from jobs.errors import Broken, DatabaseUnavailable
from jobs.model import Value
from jobs.ports.clock import Clock

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
log = structlog.get_logger()

PARALLEL = Pace(commit_linger_s=0.005, gap_s=0.0, writers=4)
"""While one group waits for the disk the next is carried out. With 8 callers on 2 cores: about as quick as one writer
where a flush takes less than 1 ms (870 to 1,300 commits/s), twice as quick where it takes 10 (490 to 590 against 250).
"""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 1.0
_CONNECTING: dict[str, Any] = {
    "application_name": "nightmill",
    "connect_timeout": 5,  # seconds
    # A server that is gone without a word (its machine lost power) is noticed after 10 to 15 s.
    "keepalives_idle": 5,  # seconds
    "keepalives_interval": 5,  # seconds
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,  # milliseconds
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresPolicy(Value):
    """connections: of one process, at most. statement_s: how long a statement may run.

    idle_s: after that the server ends a transaction whose client says nothing: one that is frozen must not hold its
    rows. lock_s: how long a statement waits for a lock; longer than idle_s, so that it outlasts a frozen holder.
    retry_s: how long a lost connection, a server that is away or a deadlock is tried again.
    """

    connections: int = 8
    statement_s: float = 30.0
    idle_s: float = 8.0
    lock_s: float = 12.0
    retry_s: float = 10.0


class PostgresDatabase(Database):
    """May be used from any thread; not across a fork."""

    def __init__(self, engine: sa.Engine, *, where: str, clock: Clock, pace: Pace, policy: PostgresPolicy) -> None:
        reader = engine.execution_options(isolation_level="AUTOCOMMIT")  # from the same pool
        super().__init__(reader=reader, writer=engine, where=where, clock=clock, pace=pace)
        self._policy = policy
        self._pid = os.getpid()

    def ask(self, work: Callable[[sa.Connection], T]) -> T:
        return self._patiently(lambda: super(PostgresDatabase, self).ask(work))

    def write(self, work: Callable[[sa.Connection], T], *, linger_s: float | None = None, durable: bool = True) -> T:
        """In this thread, at once: `linger_s` is for databases with one writer."""
        del linger_s
        return self._transact(work if durable else _soft(work))

    def write_list(self, work: Callable[[sa.Connection, list[A]], list[B]], items: Sequence[A]) -> list[B]:
        """In this thread, as `write`."""
        return self._transact(lambda connection: work(connection, [*items]))

    def time(self) -> float:
        return self.ask(self.now)

    def _transact(self, work: Callable[[sa.Connection], T]) -> T:
        """A transaction whose COMMIT was not answered may have been made: it is carried out again, and its guards tell.

        Asking the server for the old one's fate (`pg_xact_status`) would be wrong after a failover: a standby that lost
        the last transactions gives their numbers to others.
        """
        return self._patiently(lambda: super(PostgresDatabase, self)._transact(work))

    def _patiently(self, attempt: Callable[[], T]) -> T:
        if os.getpid() != self._pid:
            raise Broken(reason="a database opened before a fork was used after it")
        ends, wait_s = None, _FIRST_WAIT_S
        while True:
            try:
                return attempt()
            except DatabaseUnavailable as error:
                now = self._clock.monotonic()
                ends = ends or now + self._policy.retry_s
                if not passes(error) or now + wait_s > ends:
                    raise
                log.warning("database_again", reason=error.sentence, in_s=wait_s)
                if is_read_only(error):
                    self._engine.dispose()  # its other connections lead to the same standby
            self._clock.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _soft(work: Callable[[sa.Connection], T]) -> Callable[[sa.Connection], T]:
    """Committed without waiting for the flush: the last fraction of a second may be lost, and nothing else."""

    def carry_out(connection: sa.Connection) -> T:
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
        return work(connection)

    return carry_out


def shown(url: sa.URL) -> str:
    """Where it leads, without what must not be read in a log."""
    hosts = url.query.get("host", ())  # several, one of which is the primary
    host = url.host or ",".join([hosts] if isinstance(hosts, str) else hosts) or "localhost"
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{user}{host}{port}/{url.database or ''}"


def parse(text: str) -> sa.URL:
    """A URL as users write it: postgres://, postgresql:// or with the driver's name. Raises DatabaseUnfit."""
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:
        reason = "it is no URL, such as postgresql://user@host/name"
        raise DatabaseUnfit(where="of database_url", reason=reason) from None
    if url.drivername not in {"postgres", "postgresql", "postgresql+psycopg"}:
        raise DatabaseUnfit(where=shown(url), reason=f"{url.drivername} is not postgresql")
    return url.set(drivername="postgresql+psycopg")


def connect(url: sa.URL, policy: PostgresPolicy) -> sa.Engine:
    """An engine whose connections are bounded in number and time. Raises DatabaseUnfit without its driver."""
    arguments = {name: value for name, value in _CONNECTING.items() if name not in url.query}
    try:
        engine = sa.create_engine(
            url,
            isolation_level="READ COMMITTED",
            pool_size=policy.connections,
            max_overflow=0,
            pool_timeout=policy.lock_s,
            connect_args=arguments,
            hide_parameters=True,  # an error's text goes into logs, and a job's record holds its prompt
        )
    except ImportError as error:
        reason = "psycopg is not installed; run: pip install 'nightmill[postgres]'"
        raise DatabaseUnfit(where=shown(url), reason=reason) from error
    settings = {
        "statement_timeout": _ms(policy.statement_s),
        "lock_timeout": _ms(policy.lock_s),
        "idle_in_transaction_session_timeout": _ms(policy.idle_s),
        "synchronous_commit": "on",
        # Everything here is looked up by a key, but for whole-book checks. The planner's statistics trail behind a
        # queue: after a million new tasks, or their end, it would read the table through.
        "enable_seqscan": "off",
    }

    set_all = "SELECT " + ", ".join(f"set_config('{name}', '{to}', false)" for name, to in settings.items())

    def set_up(connection: Any, _: Any) -> None:
        connection.autocommit = True
        connection.execute(set_all)
        connection.autocommit = False

    sa.event.listen(engine, "connect", set_up)
    return engine


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
