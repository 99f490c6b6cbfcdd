"""The outbox in SQL: messages of released tasks on their way into the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import dialect, rows, tables
from infra.sql.shelf import Shelf, all_of
from jobs.model import Task, TaskState
from jobs.ports.store import OutboxRow, Place

_outbox = tables.outbox.c
_PUBLISHED = tables.outbox.update().where(_outbox.id == sa.bindparam("of_id"))


class SqlOutbox(Shelf):
    """`jobs.ports.store.OutboxStore`. A row goes with the release that wrote it, so the table stays small."""

    def pending(self, limit: int, pool: str | None = None) -> list[OutboxRow]:
        query = sa.select(tables.outbox).where(_outbox.published_at.is_(None))
        if pool is not None:
            query = query.where(_outbox.pool == pool)
        found = self._db.ask(all_of(query.order_by(_outbox.id).limit(limit)))
        return [OutboxRow(id=row.id, message=rows.message_of(row), released_at=row.created_at) for row in found]

    def published(self, places: Mapping[int, Place]) -> None:
        """A row that is gone was leased or withdrawn meanwhile: nothing needs to be known of its message."""
        if not places:
            return

        def work(connection: sa.Connection) -> None:
            free = _not_leaving(connection, sorted(places))
            now = self._db.now(connection)
            noted = [
                {
                    "of_id": number,
                    "published_at": now,
                    "topic": place.topic,
                    "topic_id": place.topic_id,
                    "partition": place.partition,
                    "log_offset": place.offset,
                }
                for number, place in places.items()
                if number in free
            ]
            if noted:
                connection.execute(_PUBLISHED, noted)

        self._db.write(work, durable=False)

    def silent(self, pool: str, older_than_s: float) -> list[tuple[Task, Place]]:
        task = tables.tasks.c
        query = (
            sa.select(tables.tasks, _outbox.topic, _outbox.topic_id, _outbox.partition, _outbox.log_offset)
            .join_from(tables.outbox, tables.tasks, task.id == _outbox.task)
            .where(_outbox.pool == pool, task.state == TaskState.RELEASED.value, task.epoch == _outbox.epoch)
            .order_by(_outbox.id)
        )

        def look(connection: sa.Connection) -> Sequence[Any]:
            long_ago = _outbox.published_at < self._db.now(connection) - older_than_s
            return connection.execute(query.where(long_ago)).all()

        return [
            (rows.task_of(r), Place(topic=r.topic, topic_id=r.topic_id, partition=r.partition, offset=r.log_offset))
            for r in self._db.ask(look)
        ]


def _not_leaving(connection: sa.Connection, ids: Sequence[int]) -> set[int]:
    """Those of the rows that no lease is just deleting: waiting for it while it waits for us would be a deadlock."""
    query = sa.select(_outbox.id).where(dialect.among(connection, _outbox.id, ids)).with_for_update(skip_locked=True)
    return {row.id for row in connection.execute(query)}
