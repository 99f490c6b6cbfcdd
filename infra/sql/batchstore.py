"""Batches in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, ends, filestore, quotastore
from infra.sql import tables_filing as tables
from infra.sql.before import Before
from infra.sql.shelf import Shelf, in_order
from jobs.errors import NotFound, QuotaExceeded
from jobs.filing import Batch

_batches, _files = tables.batches.c, tables.stored_files.c
_BATCH = sa.select(_batches.record).where(_batches.id == sa.bindparam("of_batch"))
_CHANGE = tables.batches.update().where(_batches.id == sa.bindparam("of_batch"))  # sets what its parameters name
_place = sa.tuple_(_batches.created_at, _batches.id)


class SqlBatches(Shelf):
    """`jobs.ports.filing.BatchStore`."""

    def add_batch(self, batch: Batch) -> Batch:
        def work(connection: sa.Connection) -> Batch | QuotaExceeded:
            if (made := _made_before(connection, batch)) is not None:
                return made
            now = self._db.now(connection)
            _check_input(connection, batch, now)
            if (refused := quotastore.hold(connection, batch.tenant, batch.enqueued_tokens)) is not None:
                return _made_before(connection, batch) or refused  # this very one may have taken the room just now
            new = batch.evolve(created_at=batch.created_at or now)
            if dialect.insert_new(connection, tables.batches, _row(new, now)):
                return new
            quotastore.hold(connection, batch.tenant, -batch.enqueued_tokens)  # somebody was faster
            return _made_before(connection, batch) or new

        return _or_raise(self._db.write(work))

    def batch(self, batch_id: str, tenant: str) -> Batch:
        found = self._db.ask(lambda c: _find(c, batch_id))
        if found is None or found.tenant != tenant:
            raise _unknown(batch_id)
        return found

    def batches(self, tenant: str, *, after: str | None = None, limit: int = 20) -> list[Batch]:
        def work(connection: sa.Connection) -> list[Batch]:
            query = sa.select(_batches.record).where(_batches.tenant == tenant)
            if after is not None:
                last = _find(connection, after)
                if last is None or last.tenant != tenant:
                    raise _unknown(after)
                query = query.where(_place < (last.created_at, last.id))
            query = query.order_by(_batches.created_at.desc(), _batches.id.desc()).limit(limit)
            return _all(connection, query)

        return self._db.ask(work)

    def open_batches(self, *, after: str | None = None, limit: int = 1000) -> list[Batch]:
        def work(connection: sa.Connection) -> list[Batch]:
            query = sa.select(_batches.record).where(_batches.ended_at.is_(None))
            if after is not None and (last := _find(connection, after)) is not None:
                query = query.where(_place > (last.created_at, last.id))
            return _all(connection, query.order_by(_batches.created_at, _batches.id).limit(limit))

        return self._db.ask(work)

    def change_batch(self, batch: Batch) -> Batch | None:
        return self.change_batches([batch])[0]

    def change_batches(self, batches: Sequence[Batch]) -> list[Batch | None]:
        changed = self._db.write_list(self._change_batch, [(batch, Before()) for batch in batches])
        return [None if new is None else _or_raise(new) for new in changed]

    def _change_batch(
        self, connection: sa.Connection, batches: list[tuple[Batch, Before]]
    ) -> list[Batch | QuotaExceeded | None]:
        """All are locked first, in the order of their ids; then quotas, which are shared, in that of their tenants."""
        now = self._db.now(connection)
        had = _locked(connection, [batch.id for batch, _ in batches])

        def change(one: tuple[Batch, Before]) -> Batch | QuotaExceeded | None:
            batch, before = one
            new = _change(connection, had.get(batch.id), batch, before, now)
            if isinstance(new, Batch):
                had[batch.id] = new
            return new

        return in_order(batches, lambda one: one[0].tenant, change)

    def enqueued_tokens(self, tenant: str) -> int:
        return self._db.ask(lambda c: quotastore.held(c, tenant))


def _locked(connection: sa.Connection, names: list[str]) -> dict[str, Batch]:
    these = dialect.among(connection, _batches.id, names)
    query = sa.select(_batches.id, _batches.record).where(these).order_by(_batches.id).with_for_update()
    return {row.id: _batch_of(row.record) for row in connection.execute(query)}


def _change(
    connection: sa.Connection, had: Batch | None, batch: Batch, before: Before, now: float
) -> Batch | QuotaExceeded | None:
    """had: as it is, locked."""
    new = batch.evolve(version=batch.version + 1)
    if new.status.terminal:
        new = new.evolve(enqueued_tokens=0)
    if had is None or had.version != batch.version or had.status.terminal:
        return new if before.done and had == new else None
    more = new.enqueued_tokens - had.enqueued_tokens
    if (refused := quotastore.hold(connection, had.tenant, more)) is not None:
        return refused
    connection.execute(_CHANGE, {"of_batch": batch.id, **_row(new, now)})
    if new.status.terminal:
        ends.tell_of_batch(connection, new, now)
    before.done = True
    return new


def _check_input(connection: sa.Connection, batch: Batch, now: float) -> None:
    """Raises NotFound. The lock keeps it from being deleted until the batch is written."""
    query = sa.select(_files.id).where(_files.id == batch.input_file, *filestore.alive(batch.tenant, now))
    if connection.execute(query.with_for_update(read=True)).first() is None:
        raise filestore.unknown(batch.input_file)


@lru_cache(maxsize=4096)
def _batch_of(text: str) -> Batch:
    """The keeper reads the same open batches five times a second."""
    return codec.decode(Batch, text)


def _find(connection: sa.Connection, batch_id: str) -> Batch | None:
    text = connection.execute(_BATCH, {"of_batch": batch_id}).scalar_one_or_none()
    return None if text is None else _batch_of(text)


def _all(connection: sa.Connection, query: sa.Select[Any]) -> list[Batch]:
    return [_batch_of(text) for text in connection.execute(query).scalars()]


def _row(batch: Batch, now: float) -> dict[str, Any]:
    return {
        "id": batch.id,
        "tenant": batch.tenant,
        "input_file": batch.input_file,
        "version": batch.version,
        "enqueued_tokens": batch.enqueued_tokens,
        "created_at": batch.created_at,
        "ended_at": now if batch.status.terminal else None,
        "record": codec.encode(batch),
    }


def _made_before(connection: sa.Connection, batch: Batch) -> Batch | None:
    """The batch of this id. Raises NotFound where it is another tenant's."""
    found = _find(connection, batch.id)
    if found is not None and found.tenant != batch.tenant:
        raise _unknown(batch.id)
    return found


def _or_raise(found: Batch | QuotaExceeded) -> Batch:
    if isinstance(found, QuotaExceeded):
        raise found
    return found


def _unknown(batch_id: str) -> NotFound:
    return NotFound(kind="batch", name=batch_id, hint="List the batches there are: GET /v1/batches")
