"""PostgreSQL as a service: a server in a folder of its own, reached over 127.0.0.1 by a password made for it."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from infra.deploy.cluster.service import Failed, Service

USER = DATABASE = "nightmill"
_INSTALLED = "/usr/lib/postgresql/*/bin"  # where Debian hides what is not for everybody
_RUNS_AS = ("postgres", "nobody")  # PostgreSQL refuses to be root
_SOCKET_CHARS = 107 - len("/.s.PGSQL.65535")
"""A socket's path has at most 107 characters."""
_HELP = "Install PostgreSQL 15 or newer (the package that has initdb), or put its bin folder on the PATH."


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """tools: the folder of initdb and postgres. data: of the server; away from `folder` where its user may not go."""

    folder: Path
    data: Path
    tools: Path
    port: int
    user: str | None

    @property
    def password(self) -> str:
        return (self.folder / "password").read_text()

    @property
    def url(self) -> str:
        """Without the password, which goes into PGPASSWORD."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def service(self) -> Service:
        command = [
            str(self.tools / "postgres"), "-D", str(self.data), "-p", str(self.port), "-k", str(self.data),
            "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200",
        ]  # fmt: skip
        return Service(
            name="PostgreSQL",
            folder=self.folder,
            command=command,
            ready=self._ready,
            user=self.user,
            before=self._make,
            after=self._make_database,
            stop_signal=signal.SIGINT,  # a fast shutdown: clients are not waited for
        )

    def _make(self) -> None:
        """The data folder, once. Who may enter it needs no password; everybody else does."""
        if (self.data / "PG_VERSION").exists():
            return
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(24))
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.user is not None:
            shutil.chown(self.data, self.user, self.user)
        self._run(
            "initdb", "-D", str(self.data), "--username", USER, "--auth-local", "trust", "--auth-host", "scram-sha-256",
            "--encoding", "UTF8", "--locale", "C", "--no-instructions",
        )  # fmt: skip

    def _ready(self) -> bool:
        command = [str(self.tools / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False, cwd="/").returncode == 0

    def _make_database(self) -> None:
        self._query(f"ALTER USER {USER} PASSWORD '{self.password}'")
        if DATABASE not in self._query("SELECT datname FROM pg_database").split():
            self._query(f"CREATE DATABASE {DATABASE}")

    def _query(self, statement: str) -> str:
        return self._run(
            "psql", "--no-psqlrc", "-qtA", "-h", str(self.data), "-p", str(self.port), "-U", USER, "-d", "postgres",
            given=statement,
        )  # fmt: skip

    def _run(self, tool: str, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [str(self.tools / tool), *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
        )
        if done.returncode:
            raise Failed(f"PostgreSQL: {tool} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout


def find_postgres(folder: Path, port: int) -> Postgres:
    """Raises Failed saying what to do."""
    found = shutil.which("initdb")
    tools = Path(found).resolve().parent if found else max(Path("/").glob(_INSTALLED.lstrip("/")), default=None)
    if tools is None:
        raise Failed(f"There is no PostgreSQL here. {_HELP}")
    user = _user()
    return Postgres(folder=folder, data=_data(folder, user), tools=tools, port=port, user=user)


def _user() -> str | None:
    """Whom the server runs as, if not as ourselves."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    user = next((name for name in _RUNS_AS if name in known), None)
    if user is None:
        raise Failed(f"PostgreSQL does not run as root, and there is no user {' or '.join(_RUNS_AS)} to run it as.")
    return user


def _data(folder: Path, user: str | None) -> Path:
    """Below the folder if its user may go there and its name is not too long, else among the temporary files."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(str(folder / "data")) <= _SOCKET_CHARS and (user is None or _may_enter(folder, user)):
        return folder / "data"
    name = sha256(str(folder).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"nightmill-postgres-{name}"


def _may_enter(folder: Path, user: str) -> bool:
    done = subprocess.run(["/bin/sh", "-c", f'cd "{folder}"'], user=user, group=user, extra_groups=[], check=False,
                          capture_output=True, cwd="/")  # fmt: skip
    return done.returncode == 0
