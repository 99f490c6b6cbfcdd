"""Stored files in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect
from infra.sql import tables_filing as tables
from infra.sql.before import Before
from infra.sql.shelf import Shelf
from jobs.errors import Conflict, NotFound
from jobs.filing import FileKind, StoredFile

_files, _batches = tables.stored_files.c, tables.batches.c
_AS_THEY_ARE = tuple(name for name in StoredFile.__slots__ if name != "purpose")
_PAGE = 500
_CHUNK = 500  # names in one IN list
_BEING_READ = sa.exists().where(_batches.input_file == _files.id, _batches.ended_at.is_(None))

_ALIVE = sa.select(tables.stored_files).where(
    _files.id == sa.bindparam("of_file"),
    _files.tenant == sa.bindparam("of_tenant"),
    sa.or_(_files.ends_at.is_(None), _files.ends_at > sa.bindparam("at")),
)  # `alive`, made once: each download and each batch asks it


class SqlFiles(Shelf):
    """`jobs.ports.filing.FileStore`."""

    def add_file(self, file: StoredFile) -> StoredFile:
        return self.add_files([file])[0]

    def add_files(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        return self._db.write_list(self._add_file, files) if files else []

    def _add_file(self, connection: sa.Connection, files: list[StoredFile]) -> list[StoredFile]:
        """In the order of their ids, in which all lists write theirs."""
        now = self._db.now(connection)
        new = [_row(file, now) for file in files]
        firsts = {row["id"]: row for row in reversed(new)}  # of an id that comes twice
        made = dialect.insert_all_new(connection, tables.stored_files, [firsts[name] for name in sorted(firsts)])
        return [
            _file(row) if row is firsts[file.id] and file.id in made else _made_before(connection, file)
            for file, row in zip(files, new, strict=True)
        ]

    def file(self, file_id: str, tenant: str) -> StoredFile:
        def work(connection: sa.Connection) -> StoredFile:
            asked = {"of_file": file_id, "of_tenant": tenant, "at": self._db.now(connection)}
            row = connection.execute(_ALIVE, asked).mappings().one_or_none()
            if row is None:
                raise unknown(file_id)
            return _file(row)

        return self._db.ask(work)

    def files_named(self, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StoredFile]:
        def read(connection: sa.Connection) -> Sequence[Any]:
            named = dialect.among(connection, _files.id, sorted({name for name, _ in wanted}))
            alive_ones = sa.select(tables.stored_files).where(named, not_over(self._db.now(connection)))
            return connection.execute(alive_ones).mappings().all()

        found = {(row["id"], row["tenant"]): _file(row) for row in (self._db.ask(read) if wanted else ())}
        return {one: found[one] for one in wanted if one in found}

    def stored_files(
        self,
        tenant: str,
        *,
        purpose: str | None = None,
        after: str | None = None,
        limit: int = 100,
        newest: bool = True,
    ) -> list[StoredFile]:
        place = sa.tuple_(_files.created_at, _files.id)
        query = sa.select(tables.stored_files).limit(limit)
        if newest:
            query = query.order_by(_files.created_at.desc(), _files.id.desc())
        else:
            query = query.order_by(_files.created_at, _files.id)
        if purpose is not None:
            query = query.where(_files.purpose == purpose)

        def work(connection: sa.Connection) -> list[StoredFile]:
            found = query.where(*alive(tenant, self._db.now(connection)))
            if after is not None:
                at = _created_at(connection, after, tenant)
                found = found.where(place < (at, after) if newest else place > (at, after))
            return [_file(row) for row in connection.execute(found).mappings()]

        return self._db.ask(work)

    def delete_file(self, file_id: str, tenant: str) -> None:
        before = Before()

        def work(connection: sa.Connection) -> None:
            now = self._db.now(connection)
            mine = sa.and_(_files.id == file_id, *alive(tenant, now))
            # A batch that begins to read it waits for this lock, or this for it.
            if connection.execute(sa.select(_files.id).where(mine).with_for_update()).first() is None:
                if before.done:
                    return
                raise unknown(file_id)
            gone = tables.stored_files.update().where(mine, ~_BEING_READ).values(deleted_at=now, ends_at=now)
            if not connection.execute(gone).rowcount:
                raise Conflict(reason=f"a batch that is not at its end reads {file_id}")
            before.done = True

        self._db.write(work)

    def dead_files(self, older_than_s: float = 0.0) -> Iterator[StoredFile]:
        """By pages, so that no read transaction stays open while the caller works."""
        after: tuple[float, str] = (0.0, "")
        place = sa.tuple_(_files.ends_at, _files.id)
        query = sa.select(tables.stored_files).order_by(_files.ends_at, _files.id).limit(_PAGE)

        def dead(connection: sa.Connection) -> Sequence[Any]:
            until = self._db.now(connection) - older_than_s
            found = query.where(_files.ends_at.is_not(None), _files.ends_at <= until, ~_BEING_READ, place > after)
            return connection.execute(found).mappings().all()

        while page := self._db.ask(dead):
            yield from map(_file, page)
            after = page[-1]["ends_at"], page[-1]["id"]

    def have_records(self, file_ids: Sequence[str]) -> set[str]:
        known: set[str] = set()
        for at in range(0, len(file_ids), _CHUNK):
            known |= self._db.ask(partial(_known, file_ids[at : at + _CHUNK]))
        return known

    def forget_files(self, file_ids: Sequence[str]) -> None:
        def work(connection: sa.Connection) -> None:
            now = self._db.now(connection)
            for at in range(0, len(file_ids), _CHUNK):
                named = dialect.among(connection, _files.id, file_ids[at : at + _CHUNK])
                connection.execute(tables.stored_files.delete().where(named, _files.ends_at <= now))

        self._db.write(work)


def _made_before(connection: sa.Connection, file: StoredFile) -> StoredFile:
    """The record of this id. Raises NotFound where it is another tenant's."""
    mine = sa.select(tables.stored_files).where(_files.id == file.id, _files.tenant == file.tenant)
    row = connection.execute(mine).mappings().one_or_none()
    if row is None:
        raise unknown(file.id)
    return _file(row)


def alive(tenant: str, now: float) -> tuple[sa.ColumnElement[bool], ...]:
    """The tenant's own, neither deleted nor expired."""
    return _files.tenant == tenant, not_over(now)


def not_over(now: float) -> sa.ColumnElement[bool]:
    """Neither deleted nor expired."""
    return sa.or_(_files.ends_at.is_(None), _files.ends_at > now)


def unknown(file_id: str) -> NotFound:
    """The same words for what is another's, was deleted, or never was."""
    return NotFound(kind="file", name=file_id, hint="It may have been deleted or have expired.")


def _known(file_ids: Sequence[str], connection: sa.Connection) -> set[str]:
    query = sa.select(_files.id).where(dialect.among(connection, _files.id, file_ids))
    return {*connection.execute(query).scalars()}


def _created_at(connection: sa.Connection, file_id: str, tenant: str) -> float:
    """Also of a dead one: a list goes on where it was. Raises NotFound."""
    query = sa.select(_files.created_at).where(_files.id == file_id, _files.tenant == tenant)
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise unknown(file_id)
    return float(found)


def _row(file: StoredFile, now: float) -> dict[str, Any]:
    row = {name: getattr(file, name) for name in _AS_THEY_ARE}
    ends = [at for at in (file.expires_at, file.deleted_at) if at is not None]
    return row | {
        "purpose": file.purpose.value,
        "filename": codec.storable(file.filename),
        "created_at": file.created_at or now,
        "ends_at": min(ends, default=None),
    }


def _file(row: Any) -> StoredFile:
    """From a mapping that has all columns."""
    return StoredFile(purpose=FileKind(row["purpose"]), **{name: row[name] for name in _AS_THEY_ARE})
