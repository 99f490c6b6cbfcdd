# ruff: noqa: PLC0415 - a part that does not even import must not keep the others from being examined
"""What is there and what is not: each check looks, changes nothing but a file of its own, and knows the mend."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from infra import machine
from infra.bootstrap import Home
from infra.engines import environment
from infra.settings import Settings
from jobs.errors import NightmillError
from jobs.model import Value
from jobs.topics import dead_topic, ingress_topics, topics_of

if TYPE_CHECKING:
    from infra.sql.health import Server

OLDEST_PYTHON = (3, 11)
MIB = 1 << 20


class Level(StrEnum):
    """warn: a run may work, slower or not with every model. fail: no run can work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Value):
    """found: what is there. mend: what to do, "" if nothing."""

    name: str
    level: Level
    found: str
    mend: str = ""


def examine(settings: Settings) -> Iterator[Check]:
    """All checks, one after the other; the database is not created."""
    checks: dict[str, Callable[[Settings], Iterator[Check]]] = {
        "python": _python,
        "engine": _engine,
        "cpu": _cpu,
        "memory": _memory,
        "home": _home,
        "disk": _disk,
        "database": _database,
        "queue": _queue,
        "ledger": _ledger,
        "models": _models,
        "clock": _clock,
    }
    for name, check in checks.items():
        try:
            yield from check(settings)
        except NightmillError as error:
            yield Check(name=name, level=Level.FAIL, found=error.sentence, mend="as the sentence says")
        except (OSError, sqlite3.Error) as error:
            yield Check(name=name, level=Level.FAIL, found=f"{error}", mend=f"see that {settings.home} can be used")


def _python(_: Settings) -> Iterator[Check]:
    found = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info[:2] >= OLDEST_PYTHON
    mend = "" if fits else "make setup, which brings a fitting one"
    yield Check(name="python", level=Level.OK if fits else Level.FAIL, found=found, mend=mend)


def _engine(_: Settings) -> Iterator[Check]:
    vllm = machine.vllm_build()
    if vllm is None:
        mend = "make setup (CPU), or pip install nightmill[gpu]"
        yield Check(name="engine", level=Level.WARN, found="no vLLM: only the model `fake` can run", mend=mend)
        return
    missing = [name for name in ("torch", "transformers") if not machine.can_import(name)]
    if missing:
        found = f"{vllm} is installed without {', '.join(missing)}"
        yield Check(name="engine", level=Level.FAIL, found=found, mend="make setup")
        return
    yield Check(name="engine", level=Level.OK, found=vllm)
    if environment.is_cpu_build():
        yield _preloads()


def _preloads() -> Check:
    """What the engine's process will preload, found as it will find it."""
    found = environment.find_preloads(environment.library_folders())
    lacking = [name for name in ("tcmalloc", "iomp5") if not any(name in path for path in found)]
    if not lacking:
        return Check(name="preloads", level=Level.OK, found=", ".join(found))
    packages = {"tcmalloc": "apt install libtcmalloc-minimal4", "iomp5": "pip install intel-openmp"}
    mend = " and ".join(packages[name] for name in lacking)
    words = f"no {' and no '.join(lacking)}" + (f" (but {', '.join(found)})" if found else "")
    mend = f"{mend}: a CPU engine is 1.2 to 1.6 times as fast with both"
    return Check(name="preloads", level=Level.WARN, found=words, mend=mend)


def _cpu(_: Settings) -> Iterator[Check]:
    count, words = machine.cpus(), machine.cpu_instructions()
    found = f"{count} for this process" + (f", {'/'.join(words)}" if words else "")
    if machine.is_x86() and "avx2" not in words:
        mend = "a CPU engine needs AVX2; use a GPU or another machine"
        yield Check(name="cpu", level=Level.WARN, found=f"{found}, no AVX2", mend=mend)
        return
    yield Check(name="cpu", level=Level.OK, found=found)


def _memory(settings: Settings) -> Iterator[Check]:
    free = machine.available_memory()
    if free is None:
        return
    found = f"{free / 1024**3:.1f} GiB can be had"
    wanted = settings.kv_cache_gib + 2
    if free < wanted * 1024**3:
        mend = f"a CPU engine takes {wanted} GiB and its weights: lower kv_cache_gib, or end something"
        yield Check(name="memory", level=Level.WARN, found=found, mend=mend)
        return
    yield Check(name="memory", level=Level.OK, found=found)


def _home(settings: Settings) -> Iterator[Check]:
    home = settings.home
    if not home.exists():
        parent = next(p for p in home.parents if p.exists())
        usable = os.access(parent, os.W_OK | os.X_OK)
        level, mend = (Level.OK, "") if usable else (Level.FAIL, f"make {parent} writable, or set NIGHTMILL_HOME")
        yield Check(name="home", level=level, found=f"{home} is not there yet", mend=mend)
        return
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=home) as scratch:
        yield from _file_system(home, Path(scratch))


def _file_system(home: Path, scratch: Path) -> Iterator[Check]:
    one, two = scratch / "one", scratch / "two"
    one.write_bytes(b"x")
    lacks = []
    try:
        two.hardlink_to(one)
    except OSError:
        lacks.append("hard links")
    with one.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lacks.append("file locks")
    if "file locks" in lacks:
        mend = "set NIGHTMILL_HOME to a folder on a local disk"
        yield Check(name="home", level=Level.FAIL, found=f"{home} has no {' and no '.join(lacks)}", mend=mend)
    elif lacks:
        mend = "a folder on a local disk is faster and safer"
        yield Check(name="home", level=Level.WARN, found=f"{home} has no hard links: results are copied", mend=mend)
    else:
        yield Check(name="home", level=Level.OK, found=f"{home} can be written, linked and locked")


def _disk(settings: Settings) -> Iterator[Check]:
    where = next(p for p in (settings.home, *settings.home.parents) if p.exists())
    free = shutil.disk_usage(where).free
    found = f"{free / 1e9:.1f} GB free"
    if free < settings.min_free_mib * MIB:
        mend = f"free some space on the disk of {settings.home} (min_free_mib is {settings.min_free_mib})"
        yield Check(name="disk", level=Level.WARN, found=found, mend=mend)
        return
    yield Check(name="disk", level=Level.OK, found=found)


def _database(settings: Settings) -> Iterator[Check]:
    from infra.sql.schema import HEAD

    if settings.database_url:
        yield from _server(settings.database_url)
        return
    file = settings.database
    if not file.exists():
        yield Check(name="database", level=Level.OK, found=f"{file} is not there yet; the first command makes it")
        return
    verdict, revision = _look_into(file)
    if verdict != "ok":
        mend = "copy the whole data directory away first; then: sqlite3 nightmill.db .recover"
        yield Check(name="database", level=Level.FAIL, found=f"{file} is damaged: {verdict}", mend=mend)
        return
    state = f"{file}, {file.stat().st_size / MIB:.1f} MiB, revision {revision}"
    older = "" if revision == HEAD else f" (this release has {HEAD}; the next command brings it up to date)"
    yield Check(name="database", level=Level.OK, found=state + older)


def _server(url: str) -> Iterator[Check]:
    from infra.sql.health import look
    from infra.sql.schema import HEAD

    server = look(url)
    found = f"{server.where}, PostgreSQL {server.version}, {server.size_bytes / MIB:.1f} MiB, "
    found += f"revision {server.revision}" if server.revision else "no tables yet; the first command makes them"
    if server.in_recovery:
        mend = "name the primary in database_url, or both with target_session_attrs=read-write"
        yield Check(name="database", level=Level.FAIL, found=f"{found}: a standby, which takes no writes", mend=mend)
        return
    older = f" (this release has {HEAD}; the next command brings it up to date)" if server.revision != HEAD else ""
    yield Check(name="database", level=Level.OK, found=found + (older if server.revision else ""))
    yield _standby(server)


def _standby(server: Server) -> Check:
    if not server.wants_standby:
        mend = "set synchronous_standby_names on the server; until then a failover may lose the last commits"
        return Check(name="standby", level=Level.WARN, found="no synchronous standby", mend=mend)
    if server.standbys is None:
        mend = "GRANT pg_read_all_stats to this user to see them"
        return Check(name="standby", level=Level.WARN, found="synchronous standbys are asked for", mend=mend)
    if server.standbys == 0:
        found = "synchronous_standby_names is set, and no standby is synchronous now: every commit waits"
        return Check(name="standby", level=Level.FAIL, found=found, mend="start the standby, or empty the setting")
    return Check(name="standby", level=Level.OK, found=f"{server.standbys} synchronous: a failover loses no commit")


def _queue(settings: Settings) -> Iterator[Check]:
    """Kafka; the data directory's own topics need nothing."""
    where = settings.kafka_bootstrap
    if not where:
        return
    broker = Home(settings).broker
    try:
        pools = topics_of(prefix := settings.topic_prefix, [pool.name for pool in settings.pools])
        doors = ingress_topics(prefix, settings.ingress_tenants)
        differ = broker.disagreements([*pools, *doors, dead_topic(prefix)])
    finally:
        broker.close()
    mend = "change the topics with Kafka's own tools, or the settings kafka_…"
    yield from (Check(name="queue", level=Level.WARN, found=sentence, mend=mend) for sentence in differ)
    if not differ:
        yield Check(name="queue", level=Level.OK, found=f"Kafka at {where} answers; its topics are as the settings say")


def _look_into(file: Path) -> tuple[str, str]:
    """(SQLite's own verdict, schema revision)."""
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=5)
    try:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]
    except sqlite3.OperationalError:  # busy, unreadable, no such table: nothing is damaged
        raise
    except sqlite3.DatabaseError as error:
        return str(error), ""
    finally:
        connection.close()
    return str(verdict), str(revision)


def _ledger(settings: Settings) -> Iterator[Check]:
    if not _has_tables(settings):
        return
    home = Home(settings)
    try:
        report = home.store.verify()
    finally:
        home.close()
    if report.faults:
        mend = "nightmill ledger verify lists all faults; keep a copy of the data directory"
        yield Check(name="ledger", level=Level.FAIL, found=report.faults[0], mend=mend)
        return
    yield Check(name="ledger", level=Level.OK, found=f"sound: {report.transactions:,} transactions")


def _has_tables(settings: Settings) -> bool:
    """Whether a look into the database would make none."""
    from infra.sql.health import look
    from infra.sql.schema import HEAD

    if settings.database_url:
        return look(settings.database_url).revision == HEAD
    return settings.database.exists()


def _models(settings: Settings) -> Iterator[Check]:
    registry = Home(settings).registry
    for name in registry.names():
        try:
            model = registry.resolve(name)
        except NightmillError as error:
            sentence, _, mend = error.sentence.partition(" Run: ")
            yield Check(name=f"model {name}", level=Level.WARN, found=sentence, mend=mend.rstrip("."))
        else:
            yield Check(name=f"model {name}", level=Level.OK, found=f"{model.kind}, {model.path or 'made-up answers'}")


def _clock(settings: Settings) -> Iterator[Check]:
    """The machine's clock against the one that stamps files in the data directory."""
    now = time.time()
    found = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if not settings.home.exists():
        yield Check(name="clock", level=Level.OK, found=found)
        return
    with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=settings.home) as file:
        apart_s = abs(Path(file.name).stat().st_mtime - now)
    if apart_s > 2:
        found = f"{found}; the file system's is {apart_s:.0f} s apart"
        yield Check(name="clock", level=Level.WARN, found=found, mend="set both by NTP; leases are timed by them")
        return
    yield Check(name="clock", level=Level.OK, found=found)
