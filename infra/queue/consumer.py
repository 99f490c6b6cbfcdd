"""One member of a consumer group over the SQLite queue."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import sqlalchemy as sa

from infra.queue import groups
from infra.sql.faults import translated
from jobs.ports.queue import Record, TopicPartition
from jobs.ports.store import Place

if TYPE_CHECKING:
    from infra.queue.sqlite import SqliteQueue

_ASSIGNED = (
    "SELECT a.topic, a.part, t.topic_id, coalesce(o.pos, l.log_start) AS start"
    " FROM assignments a JOIN topics t ON t.topic = a.topic"
    " JOIN logs l ON l.topic_id = t.topic_id AND l.part = a.part"
    " LEFT JOIN offsets o ON o.grp = a.grp AND o.topic_id = t.topic_id AND o.part = a.part"
    " WHERE a.grp = ? AND a.member = ? ORDER BY a.topic, a.part"
)
_RECORDS = (
    "SELECT pos, key, value, headers FROM records WHERE topic_id = ? AND part = ? AND pos >= ? ORDER BY pos LIMIT ?"
)


class SqliteConsumer:
    """`jobs.ports.queue.Consumer`. It keeps one reading connection, by which it sees cheaply that nothing changed."""

    def __init__(self, queue: SqliteQueue, *, group: str, member: str, topics: Sequence[str]) -> None:
        self._queue = queue
        self._group = group
        self._member = member
        self._topics = tuple(topics)
        self._connection = queue.db.connect()
        self._generation: int | None = None
        self._version: int | None = None
        self._ids: dict[TopicPartition, str] = {}
        self._next: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._turn = 0
        self._beat_at = 0.0
        self._closed = False
        self._join()

    def poll(self, timeout_s: float, max_records: int = 64) -> list[Record]:
        until = time.monotonic() + timeout_s
        while True:
            arrivals = self._queue.arrivals()
            self._stay()
            with translated(self._queue.db.where):
                records = self._fetch(max_records) if self._changed() else []
            left = until - time.monotonic()
            if records or left <= 0:
                return records
            self._queue.wait(arrivals, min(left, self._queue.policy.look_s))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets of partitions that went to another member meanwhile are dropped: that member starts before them."""

        def work(connection: sa.Connection) -> None:
            groups.commit(connection, self._group, self._member, offsets)
            self._queue.clean(connection, list(offsets))

        if offsets:
            self._queue.db.write(work)

    def committed(self, partition: TopicPartition) -> int | None:
        return self._queue.committed(self._group, *partition)

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._ids)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Lasts until `resume`, or until the partition goes to another member."""
        self._paused |= self._ids.keys() & set(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        if resumed := self._paused & set(partitions):
            self._paused -= resumed
            self._version = None  # look at them although nothing new is committed

    def close(self) -> None:
        """Leave the group at once, so that the others need not wait for the session to run out."""
        if self._closed:
            return
        self._closed = True
        self._queue.db.write(lambda connection: groups.leave(connection, self._group, self._member))
        self._connection.close()
        self._queue.wake()

    # ---- membership -----------------------------------------------------------------------------

    def _join(self) -> None:
        process, now = self._queue.process(), self._queue.clock.now()

        def work(connection: sa.Connection) -> None:
            self._queue.bury(connection, self._group)
            groups.join(
                connection, group=self._group, member=self._member, process=process, topics=self._topics, now=now
            )

        self._queue.db.write(work)
        self._queue.wake()
        self._beat_at = now
        with translated(self._queue.db.where):
            self._assign()

    def _stay(self) -> None:
        """Beat three times a session, and look for members that no longer do; come back if given up oneself."""
        now = self._queue.clock.now()
        if now - self._beat_at < self._queue.policy.session_s / 3:
            return

        def work(connection: sa.Connection) -> bool:
            alive = groups.beat(connection, self._group, self._member, now)
            self._queue.bury(connection, self._group)
            return alive

        self._beat_at = now
        if not self._queue.db.write(work):
            self._join()

    def _changed(self) -> bool:
        """Whether anything was committed since the last look. SQLite tells with no read of the tables."""
        version = self._connection.exec_driver_sql("PRAGMA data_version").scalar_one()
        changed = bool(version != self._version)
        self._version = version
        if changed:
            self._assign()
        return changed

    def _assign(self) -> None:
        """Take over what the group's present generation deals to us; partitions that we keep go on where they are."""
        query = "SELECT generation FROM generations WHERE grp = ?"
        generation = self._connection.exec_driver_sql(query, (self._group,)).scalar_one_or_none()
        if generation == self._generation:
            return
        self._generation = generation
        found = self._connection.exec_driver_sql(_ASSIGNED, (self._group, self._member)).all()
        ids = {(row.topic, row.part): row.topic_id for row in found}
        kept = {place for place, topic_id in ids.items() if self._ids.get(place) == topic_id}
        self._next = {
            (r.topic, r.part): self._next[r.topic, r.part] if (r.topic, r.part) in kept else r.start for r in found
        }
        self._paused &= kept
        self._ids = ids

    # ---- records --------------------------------------------------------------------------------

    def _fetch(self, room: int) -> list[Record]:
        """Each partition in turn first, so that a full one cannot starve the others."""
        places = [place for place in self._ids if place not in self._paused]
        self._turn += 1
        records: list[Record] = []
        for number in range(len(places)):
            place = places[(self._turn + number) % len(places)]
            records += self._fetch_from(place, room - len(records))
        if len(records) >= room:
            self._version = None  # there may be more: look again although nothing new is committed
        return records

    def _fetch_from(self, place: TopicPartition, room: int) -> list[Record]:
        if room <= 0:
            return []
        wanted = (self._ids[place], place[1], self._next[place], room)
        records = [self._record(place, row) for row in self._connection.exec_driver_sql(_RECORDS, wanted)]
        if records:
            self._next[place] = records[-1].place.offset + 1
        return records

    def _record(self, place: TopicPartition, row: Any) -> Record:
        topic, part = place
        headers = tuple((name, bytes.fromhex(value)) for name, value in orjson.loads(row.headers))
        where = Place(topic=topic, topic_id=self._ids[place], partition=part, offset=row.pos)
        return Record(place=where, key=row.key, value=row.value, headers=headers)
