# ruff: noqa: PLC0415 - a part that does not even import must not keep the others from being examined
"""Of what is kept and by whom: the database and its ledger, the topics, the models."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from infra.bootstrap import Home
from infra.doctor.check import Check, Level
from infra.settings import Settings
from jobs.errors import NightmillError
from jobs.topics import dead_topic, ingress_topics, topics_of

if TYPE_CHECKING:
    from infra.sql.health import Server

MIB = 1 << 20


def database(settings: Settings) -> Iterator[Check]:
    """SQLite's file, or the PostgreSQL server and its standbys."""
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


def queue(settings: Settings) -> Iterator[Check]:
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


def ledger(settings: Settings) -> Iterator[Check]:
    """Whether the book adds up, where there is one."""
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


def models(settings: Settings) -> Iterator[Check]:
    """Each of the registry, and whether its weights are there."""
    registry = Home(settings).registry
    for name in registry.names():
        try:
            model = registry.resolve(name)
        except NightmillError as error:
            sentence, _, mend = error.sentence.partition(" Run: ")
            yield Check(name=f"model {name}", level=Level.WARN, found=sentence, mend=mend.rstrip("."))
        else:
            yield Check(name=f"model {name}", level=Level.OK, found=f"{model.kind}, {model.path or 'made-up answers'}")
