"""The queue's tables. It has a file of its own, `queue.db`, beside the database:

its heartbeats and offsets then never stand between two commits of tasks, it can be deleted like a broker's disk (the
reaper finds what was lost by the new topic ids), and it needs no migrations: it holds only the next few minutes.
"""

from __future__ import annotations

from pathlib import Path

from infra.locks import FileLock
from infra.sql.engine import make_wal, pragma_of, sqlite_writer
from infra.sql.faults import DatabaseNewer, translated

VERSION = 1

_TABLES = """
CREATE TABLE topics (topic TEXT PRIMARY KEY, topic_id TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL);
CREATE TABLE logs (
    topic_id TEXT, part INTEGER, log_start INTEGER NOT NULL, log_end INTEGER NOT NULL, PRIMARY KEY (topic_id, part)
) WITHOUT ROWID;
CREATE TABLE records (
    topic_id TEXT, part INTEGER, pos INTEGER, key BLOB NOT NULL, value BLOB NOT NULL, headers TEXT NOT NULL,
    at REAL NOT NULL, PRIMARY KEY (topic_id, part, pos)
) WITHOUT ROWID;
CREATE TABLE offsets (
    grp TEXT, topic_id TEXT, part INTEGER, pos INTEGER NOT NULL, PRIMARY KEY (grp, topic_id, part)
) WITHOUT ROWID;
CREATE TABLE generations (grp TEXT PRIMARY KEY, generation INTEGER NOT NULL);
CREATE TABLE members (
    grp TEXT, member TEXT, process TEXT NOT NULL, topics TEXT NOT NULL, seen REAL NOT NULL, joined INTEGER NOT NULL,
    PRIMARY KEY (grp, member)
) WITHOUT ROWID;
CREATE TABLE assignments (
    grp TEXT, topic TEXT, part INTEGER, member TEXT NOT NULL, PRIMARY KEY (grp, topic, part)
) WITHOUT ROWID;
"""


def prepare(path: Path) -> None:
    """Make the file and its tables; one process does it while the others wait."""
    with translated(str(path)):
        if path.exists() and _version(path) == VERSION:
            return
        with FileLock(path.with_name(f"{path.name}.make.lock"), wait=True):
            _make(path)


def _make(path: Path) -> None:
    found = _version(path)
    if found > VERSION:
        raise DatabaseNewer(where=str(path), revision=found)
    if found == VERSION:
        return
    make_wal(path)
    engine = sqlite_writer(path)
    try:
        with engine.begin() as connection:
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
    finally:
        engine.dispose()


def _version(path: Path) -> int:
    return int(pragma_of(path, "user_version") or 0)
