"""Topics in a SQLite file: a broker that needs no service, for one machine."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa

from infra.clocks import SystemClock, SystemIds
from infra.locks import FileLock, OwnerLock
from infra.queue import groups, schema
from infra.queue.consumer import SqliteConsumer
from infra.sql.engine import Database, sqlite_database
from infra.sql.writer import Pace
from jobs.errors import DatabaseUnavailable, NotFound
from jobs.model import Value
from jobs.ports.clock import Clock, Ids
from jobs.ports.queue import Outgoing, TopicFacts, TopicPartition
from jobs.ports.store import Place

FILE = "queue.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy(Value):
    """session_s: a member that has not polled for this long loses its partitions (a killed one loses them at once).

    look_s: how soon what another process published is seen. retention_s: records older than this go, read or not;
    younger ones go when every group is past them. clean_every_s: how often that is looked at.
    """

    session_s: float = 10.0
    look_s: float = 0.025
    retention_s: float = 86400.0
    clean_every_s: float = 5.0


class SqliteQueue:
    """`jobs.ports.queue.Queue`. May be used from any thread; each consumer from one."""

    def __init__(self, db: Database, home: Path, *, clock: Clock, ids: Ids, policy: QueuePolicy) -> None:
        self.db = db
        self.clock = clock
        self.policy = policy
        self._ids = ids
        self._owners = OwnerLock(home / "queue")
        self._process: FileLock | None = None
        self._arrived = threading.Condition()
        self._arrivals = 0
        self._cleaned_at = 0.0

    def ensure_topics(self, topics: Sequence[str], partitions: int | None = None) -> None:
        def work(connection: sa.Connection) -> None:
            known = {row.topic for row in connection.exec_driver_sql("SELECT topic FROM topics")}
            new = [topic for topic in dict.fromkeys(topics) if topic not in known]
            for topic in new:
                self._make(connection, topic, partitions or 1)
            groups.deal_all(connection, new)

        self.db.write(work)
        self.wake()

    def disagreements(self, topics: Sequence[str], partitions: int | None = None) -> list[str]:
        """About the number of partitions, if one is asked for."""
        found = {topic: facts.partitions for topic in topics if (facts := self.facts(topic)) is not None}
        wrong = {topic: number for topic, number in found.items() if partitions not in {None, number}}
        return [f"Topic {topic} has partitions {number} instead of {partitions}." for topic, number in wrong.items()]

    def publish(self, messages: Sequence[Outgoing]) -> list[Place]:
        """Raises NotFound for a topic that is not there, and then sends none of the messages."""
        if not messages:
            return []
        places = self.db.write(lambda connection: self._append(connection, messages))
        self.wake()
        return places

    def consumer(self, group: str, topics: Sequence[str]) -> SqliteConsumer:
        return SqliteConsumer(self, group=group, member=self._ids.token(), topics=topics)

    def facts(self, topic: str) -> TopicFacts | None:
        query = (
            "SELECT t.topic_id, t.partitions, l.part, l.log_start, l.log_end"
            " FROM topics t JOIN logs l ON l.topic_id = t.topic_id WHERE t.topic = ? ORDER BY l.part"
        )
        with self.db.read() as connection:
            found = connection.exec_driver_sql(query, (topic,)).all()
        if not found:
            return None
        return TopicFacts(
            topic=topic,
            topic_id=found[0].topic_id,
            partitions=found[0].partitions,
            log_start={row.part: row.log_start for row in found},
            log_end={row.part: row.log_end for row in found},
        )

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        query = (
            "SELECT o.pos FROM offsets o JOIN topics t ON t.topic_id = o.topic_id"
            " WHERE o.grp = ? AND t.topic = ? AND o.part = ?"
        )
        with self.db.read() as connection:
            found: int | None = connection.exec_driver_sql(query, (group, topic, partition)).scalar_one_or_none()
        return found

    def delete_topic(self, topic: str) -> None:
        def work(connection: sa.Connection) -> None:
            topic_id = _topic_ids(connection, [topic]).get(topic, (None, 0))[0]
            for table in ("records", "logs", "offsets", "topics"):
                connection.exec_driver_sql(f"DELETE FROM {table} WHERE topic_id = ?", (topic_id,))  # noqa: S608
            groups.deal_all(connection, [topic])

        self.db.write(work)
        self.wake()

    def close(self) -> None:
        self.db.close()
        if self._process is not None:
            self._process.close()

    # ---- for its consumers ----------------------------------------------------------------------

    def process(self) -> str:
        """The name under which this process shows that it lives; producers need none."""
        with self._arrived:
            if self._process is None:
                self._process = self._owners.hold(self._ids.token())
            return self._process.path.stem

    def bury(self, connection: sa.Connection, group: str) -> None:
        """Take the partitions of members that are gone."""
        before = self.clock.now() - self.policy.session_s
        groups.bury(connection, group, before=before, is_alive=self._owners.is_alive)

    def arrivals(self) -> int:
        """Counts what happened in this process that a consumer may wait for."""
        return self._arrivals

    def wake(self) -> None:
        """Let waiting consumers of this process look at once."""
        with self._arrived:
            self._arrivals += 1
            self._arrived.notify_all()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Wait for an arrival after `seen`; other processes' arrivals end no wait, so `timeout_s` is short."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._arrivals != seen, timeout_s)

    def clean(self, connection: sa.Connection, partitions: Sequence[TopicPartition]) -> None:
        """Drop the records of these partitions that nobody waits for, and all that are too old; at intervals."""
        now = self.clock.now()
        if now - self._cleaned_at < self.policy.clean_every_s:
            return
        self._cleaned_at = now
        ids = _topic_ids(connection, [topic for topic, _ in partitions])
        for topic, part in partitions:
            if topic in ids:
                done = groups.finished(connection, topic, ids[topic][0], part)
                _cut(connection, "topic_id = ? AND part = ? AND pos < ?", (ids[topic][0], part, done))
        _cut(connection, "at < ?", (now - self.policy.retention_s,))

    # ---- inside transactions --------------------------------------------------------------------

    def _make(self, connection: sa.Connection, topic: str, partitions: int) -> None:
        topic_id = self._ids.token()
        insert = "INSERT INTO topics (topic, topic_id, partitions) VALUES (?, ?, ?)"
        connection.exec_driver_sql(insert, (topic, topic_id, partitions))
        for part in range(partitions):
            log = "INSERT INTO logs (topic_id, part, log_start, log_end) VALUES (?, ?, 0, 0)"
            connection.exec_driver_sql(log, (topic_id, part))

    def _append(self, connection: sa.Connection, messages: Sequence[Outgoing]) -> list[Place]:
        ids = _topic_ids(connection, [message.topic for message in messages])
        ends = _log_ends(connection, [topic_id for topic_id, _ in ids.values()])
        places, records, now = [], [], self.clock.now()
        for message in messages:
            if message.topic not in ids:
                raise NotFound(kind="topic", name=message.topic, hint="Topics are made before use.")
            topic_id, partitions = ids[message.topic]
            part = zlib.crc32(message.key) % partitions
            offset = ends[topic_id, part]
            ends[topic_id, part] = offset + 1
            places.append(Place(topic=message.topic, topic_id=topic_id, partition=part, offset=offset))
            headers = pack_headers(message.headers)
            records.append((topic_id, part, offset, message.key, message.value, headers, now))
        insert = "INSERT INTO records (topic_id, part, pos, key, value, headers, at) VALUES (?, ?, ?, ?, ?, ?, ?)"
        connection.exec_driver_sql(insert, records)
        update = "UPDATE logs SET log_end = ? WHERE topic_id = ? AND part = ?"
        connection.exec_driver_sql(update, [(end, *log) for log, end in ends.items()])
        return places


def open_queue(
    home: Path,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    pace: Pace | None = None,
    policy: QueuePolicy | None = None,
) -> SqliteQueue:
    """The queue of a data directory, made if it is not there."""
    path, clock = home / FILE, clock or SystemClock()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(where=str(path), reason=str(error)) from error
    schema.prepare(path)
    db = sqlite_database(path, clock=clock, pace=pace or Pace())
    return SqliteQueue(db, home, clock=clock, ids=ids or SystemIds(), policy=policy or QueuePolicy())


def pack_headers(headers: Sequence[tuple[str, bytes]]) -> str:
    """Headers as text: JSON with the values in hex."""
    return orjson.dumps([[name, value.hex()] for name, value in headers]).decode()


def _topic_ids(connection: sa.Connection, topics: Sequence[str]) -> dict[str, tuple[str, int]]:
    """topic → (id, partitions), of those that there are."""
    query = "SELECT topic_id, partitions FROM topics WHERE topic = ?"
    found = {topic: connection.exec_driver_sql(query, (topic,)).one_or_none() for topic in dict.fromkeys(topics)}
    return {topic: (row.topic_id, row.partitions) for topic, row in found.items() if row is not None}


def _log_ends(connection: sa.Connection, topic_ids: Sequence[str]) -> dict[tuple[str, int], int]:
    query = "SELECT part, log_end FROM logs WHERE topic_id = ?"
    return {
        (topic_id, row.part): row.log_end
        for topic_id in topic_ids
        for row in connection.exec_driver_sql(query, (topic_id,))
    }


def _cut(connection: sa.Connection, which: str, values: tuple[Any, ...]) -> None:
    """Delete records and move the starts of their logs behind them."""
    gone = connection.exec_driver_sql(
        f"SELECT topic_id, part, max(pos) + 1 AS start FROM records WHERE {which} GROUP BY topic_id, part",  # noqa: S608
        values,
    ).all()
    for row in gone:
        log = (row.topic_id, row.part, row.start)
        connection.exec_driver_sql("DELETE FROM records WHERE topic_id = ? AND part = ? AND pos < ?", log)
        update = "UPDATE logs SET log_start = max(log_start, ?) WHERE topic_id = ? AND part = ?"
        connection.exec_driver_sql(update, (row.start, row.topic_id, row.part))
