"""A real PostgreSQL for tests: a server in a folder of its own, on a free port; a new database for each test."""

from __future__ import annotations

import contextlib
import itertools
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from infra.clocks import ManualClock
from infra.deploy.cluster.postgres import find_postgres
from infra.deploy.cluster.service import Failed, free_ports
from infra.sql import open_store
from infra.sql.tables import metadata
from tests.support.prepared import missing

USER = "nightmill"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "fsync": "off",  # a power cut is not part of these tests; a killed server keeps what it gave the kernel
    "full_page_writes": "off",
}
# A server's clock that a test sets: found before the real one by whoever has this schema first on his search path.
_CLOCK = """
CREATE SCHEMA testing;
CREATE TABLE testing.clock (at timestamptz NOT NULL);
CREATE FUNCTION testing.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT at FROM testing.clock';
"""


class ServersClock(ManualClock):
    """A manual clock that databases follow. It counts in microseconds, as they do."""

    def __init__(self) -> None:
        super().__init__()
        self.followers: list[Database] = []

    def now(self) -> float:
        return round(super().now(), 6)

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for database in self.followers:
            database.set_clock(self.now())


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database of the server's. It follows a clock only through `url_of_clock`."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def url_of_clock(self, clock: ServersClock) -> str:
        """The database whose `clock_timestamp()` is that clock from now on."""
        clock.followers.append(self)
        self.set_clock(clock.now())
        return f"{self.url}?options=-csearch_path%3Dpublic,testing,pg_catalog"

    def set_clock(self, now: float) -> None:
        self.run("DELETE FROM testing.clock")
        self.run("INSERT INTO testing.clock VALUES (to_timestamp(%s))", now)

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self.server.run(statement, *values, database=self.name)

    def tamper(self, statement: str) -> int:
        """Run a statement that no trigger sees; how many rows it changed."""
        connection = self.server.connection(self.name)
        connection.execute("SET session_replication_role = replica")
        changed = connection.execute(statement).rowcount
        connection.execute("SET session_replication_role = DEFAULT")
        return int(changed)

    def empty(self) -> None:
        """By DELETE: ten times as quick as TRUNCATE on tables of a few rows."""
        tables = [table.name for table in metadata.sorted_tables]
        self.tamper("; ".join(f"DELETE FROM {name}" for name in tables))
        for (name,) in self.run("SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'"):
            self.run(f"ALTER SEQUENCE {name} RESTART")


@dataclass(kw_only=True)
class Server:
    folder: Path
    tools: Path
    port: int
    user: Mapping[str, Any]  # as arguments of subprocess
    settings: Mapping[str, str]
    _connections: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _free: list[Database] = field(default_factory=list)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        command = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]
        self._run("initdb", "-D", self.folder / "data", *command, "--no-sync", "--no-instructions")

    def control(self, *arguments: str) -> None:
        """pg_ctl."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in self.settings.items())
        where = ["-D", self.folder / "data", "-l", self.folder / "log", "-w", "-t", "30"]
        self._run("pg_ctl", *where, "-o", f"-p {self.port} {options}", *arguments)

    def crash(self) -> None:
        """As kill -9 and a new start: what was not written to the log is lost."""
        self.control("restart", "-m", "immediate")

    @contextmanager
    def standby(self) -> Iterator[Server]:
        """A copy that follows this server; commits wait for it."""
        with _folder(self.user) as folder:
            there = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
            self._run("pg_basebackup", *there, "-R", "-D", folder / "data", "-c", "fast", "--no-sync")
            port = free_ports(1)[0]
            standby = Server(folder=folder, tools=self.tools, port=port, user=self.user, settings=self.settings)
            standby.control("start")
            try:
                self.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
                self.run("SELECT pg_reload_conf()")
                synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                assert eventually(lambda: self.run(synchronous))
                yield standby
            finally:
                standby.control("stop", "-m", "immediate")

    def log(self) -> str:
        """What the server wrote so far."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @contextmanager
    def database(self) -> Iterator[Database]:
        """One with all tables, empty. It is used again: to make one takes longer than most tests."""
        database = self._free.pop() if self._free else self._migrated()
        yield database
        database.empty()
        self._free.append(database)

    @contextmanager
    def new_database(self, options: str = "") -> Iterator[Database]:
        """One without a table, for the test alone."""
        database = Database(server=self, name=f"test_{next(self._numbers)}")
        self.run(f"CREATE DATABASE {database.name} {options}")
        try:
            yield database
        finally:
            if database.name in self._connections:
                self._connections.pop(database.name).close()
            self.run(f"DROP DATABASE {database.name} WITH (FORCE)")

    def _migrated(self) -> Database:
        database = Database(server=self, name=f"test_{next(self._numbers)}")
        self.run(f"CREATE DATABASE {database.name}")
        open_store(database.url).close()
        database.run(_CLOCK)
        return database

    def run(self, statement: str, *values: object, database: str = "postgres") -> list[tuple[Any, ...]]:
        """One statement."""
        cursor = self.connection(database).execute(statement, values or None)
        return list(cursor.fetchall()) if cursor.description else []

    def connection(self, database: str) -> Any:
        """A superuser's, which is kept for the next call."""
        import psycopg  # noqa: PLC0415  # where it is not installed these tests are skipped

        if database not in self._connections:
            self._connections[database] = psycopg.connect(self.url(database), autocommit=True)
        return self._connections[database]

    def _run(self, tool: str, *arguments: object) -> None:
        command = [str(self.tools / tool), *map(str, arguments)]
        done = subprocess.run(command, **self.user, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.log()}"


@contextmanager
def postgres_server(**settings: str) -> Iterator[Server]:
    """Start one; skips where PostgreSQL or its driver is not installed, and fails there in CI."""
    if find_spec("psycopg") is None:
        missing("psycopg is not installed: pip install -e '.[dev]'")
    port = free_ports(1)[0]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = find_postgres(Path(scratch), port)
        except Failed as failed:
            missing(str(failed))
            raise
    user = {"user": found.user, "group": pwd.getpwnam(found.user).pw_gid, "extra_groups": []} if found.user else {}
    with _folder(user) as folder:
        server = Server(folder=folder, tools=found.tools, port=port, user=user, settings={**_SETTINGS, **settings})
        server.make()
        try:
            server.control("start")
            yield server
        finally:
            with contextlib.suppress(AssertionError):  # a test may have stopped it
                server.control("stop", "-m", "immediate")


@contextmanager
def _folder(user: Mapping[str, Any]) -> Iterator[Path]:
    """Of PostgreSQL's own user; a test's own folder is closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="nightmill-postgres-"))
    if user:
        shutil.chown(folder, user["user"], user["group"])
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def eventually(found: Callable[[], Any], within_s: float = 20.0) -> Any:
    """Ask until the answer is true; the last answer."""
    until = time.monotonic() + within_s
    while not (answer := found()) and time.monotonic() < until:
        time.sleep(0.01)
    return answer
