"""Batches in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, ends, filestore, quotastore
from infra.sql import tables_filing as tables
from infra.sql.before import Before
from infra.sql.shelf import Shelf
from jobs.errors import NotFound, QuotaExceeded, Refused
from jobs.filing import Batch

_batches, _files = tables.batches.c, tables.stored_files.c
_BATCH = sa.select(_batches.record).where(_batches.id == sa.bindparam("of_batch"))
_CHANGE = tables.batches.update().where(_batches.id == sa.bindparam("of_batch"))  # sets what its parameters name
_place = sa.tuple_(_batches.created_at, _batches.id)


class SqlBatches(Shelf):
    """`jobs.ports.filing.BatchStore`."""

    def add_batch(self, batch: Batch) -> Batch:
        return _or_raise(self._db.write_list(self._add_batches, [batch])[0])

    def _add_batches(self, connection: sa.Connection, batches: list[Batch]) -> list[Batch | Refused]:
        """What is refused is handed back, not raised: the others of the list need not come again for it."""
        now = self._db.now(connection)
        new: dict[str, Batch] = {}
        for batch in batches:
            new.setdefault(batch.id, batch.evolve(created_at=batch.created_at or now))
        for name in _known(connection, sorted(new)):
            del new[name]
        refused = _without_input(connection, list(new.values()), now)
        refused |= _over_quota(connection, [batch for batch in new.values() if batch.id not in refused])
        held = sorted(new.keys() - refused.keys())
        made = dialect.insert_all_new(connection, tables.batches, [_row(new[name], now) for name in held])
        for name in held:
            if name not in made:  # somebody was faster
                quotastore.hold(connection, new[name].tenant, -new[name].enqueued_tokens)
        answers: list[Batch | Refused] = []
        for batch in batches:
            if batch.id in made and new[batch.id].tenant == batch.tenant:
                answers.append(new[batch.id])
            else:  # one that was refused may have taken that room itself just now
                answers.append(_made_before(connection, batch) or refused.get(batch.id) or new[batch.id])
        return answers

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
        made: list[Batch] = []
        returned: list[int] = []

        def change(batch: Batch, before: Before) -> Batch | QuotaExceeded | None:
            new = _changed(batch)
            if (was := had.get(batch.id)) is None or was.version != batch.version or was.status.terminal:
                return new if before.done and was == new else None
            more = new.enqueued_tokens - was.enqueued_tokens
            if more > 0 and (refused := quotastore.hold(connection, was.tenant, more)) is not None:
                return refused
            returned.append(min(0, more))
            had[batch.id] = new
            made.append(new)
            before.done = True
            return new

        answers: dict[int, Batch | QuotaExceeded | None] = {}
        order = sorted(range(len(batches)), key=lambda place: batches[place][0].tenant)
        for tenant, places in groupby(order, key=lambda place: batches[place][0].tenant):
            answers |= {place: change(*batches[place]) for place in places}
            quotastore.hold(connection, tenant, sum(returned))
            returned.clear()
        if made:
            connection.execute(_CHANGE, [{"of_batch": new.id, **_row(new, now)} for new in made])
        if ended := [new for new in made if new.status.terminal]:
            ends.tell_of_batches(connection, ended, now)
        return [answers[place] for place in range(len(batches))]

    def enqueued_tokens(self, tenant: str) -> int:
        return self._db.ask(lambda c: quotastore.held(c, tenant))


def _locked(connection: sa.Connection, names: list[str]) -> dict[str, Batch]:
    these = dialect.among(connection, _batches.id, names)
    query = sa.select(_batches.id, _batches.record).where(these).order_by(_batches.id).with_for_update()
    return {row.id: _batch_of(row.record) for row in connection.execute(query)}


def _changed(batch: Batch) -> Batch:
    new = batch.evolve(version=batch.version + 1)
    return new.evolve(enqueued_tokens=0) if new.status.terminal else new


def _known(connection: sa.Connection, names: list[str]) -> set[str]:
    return {*connection.execute(sa.select(_batches.id).where(dialect.among(connection, _batches.id, names))).scalars()}


def _without_input(connection: sa.Connection, batches: Sequence[Batch], now: float) -> dict[str, Refused]:
    """Of those whose file is gone. The lock keeps the others' from being deleted until the batches are written."""
    named = dialect.among(connection, _files.id, sorted({batch.input_file for batch in batches}))
    of_them = dialect.among(connection, _files.tenant, sorted({batch.tenant for batch in batches}))
    query = sa.select(_files.id, _files.tenant).where(named, of_them, filestore.not_over(now)).order_by(_files.id)
    there = {(row.id, row.tenant) for row in connection.execute(query.with_for_update(read=True))}
    return {one.id: filestore.unknown(one.input_file) for one in batches if (one.input_file, one.tenant) not in there}


def _over_quota(connection: sa.Connection, batches: Sequence[Batch]) -> dict[str, Refused]:
    """Holds what they take of their tenants' quotas; the errors of those for which there was no room."""
    refused: dict[str, Refused] = {}
    ordered = sorted(batches, key=lambda batch: batch.tenant)
    for tenant, group in groupby(ordered, key=lambda batch: batch.tenant):
        mine = list(group)
        if quotastore.hold(connection, tenant, sum(batch.enqueued_tokens for batch in mine)) is not None:
            answers = [(batch.id, quotastore.hold(connection, tenant, batch.enqueued_tokens)) for batch in mine]
            refused |= {name: error for name, error in answers if error is not None}
    return refused


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


def _or_raise(found: Batch | Refused) -> Batch:
    if isinstance(found, Refused):
        raise found
    return found


def _unknown(batch_id: str) -> NotFound:
    return NotFound(kind="batch", name=batch_id, hint="List the batches there are: GET /v1/batches")
