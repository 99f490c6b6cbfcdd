"""Small objects in the database: `db:///…` URIs. A file costs a flush of its own; a row shares one with others.

For jobs of a few kilobytes, which come by the thousand. Larger ones belong into a folder or a bucket.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Iterator, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa

from infra.sql import dialect
from infra.sql.engine import Database
from infra.sql.recent import Recent
from infra.sql.tables_blobs import blobs
from jobs.errors import Exists, NotFound, Refused
from jobs.ports.objects import ObjectFacts

SCHEME = "db"
MAX_BYTES = 64 << 20
_PAGE = 1000
_blob = blobs.c
_KNOWN = sa.select(_blob.uri, _blob.size, _blob.stamp)
_FACTS = _KNOWN.where(_blob.uri == sa.bindparam("of_uri"))
_LIST = _KNOWN.where(_blob.uri > sa.bindparam("after"), _blob.uri < sa.bindparam("end")).order_by(_blob.uri)
_LIST = _LIST.limit(_PAGE)
_COLUMNS = ("uri", "size", "stamp", "data")
_COUNTED = {"preserve_rowcount": True}
"""Else only UPDATE and DELETE tell how many rows they changed, whatever the driver."""
_DATA = sa.select(_blob.data).where(_blob.uri == sa.bindparam("of_uri"))


class SqlObjects:
    """`jobs.ports.objects.Objects` over `db:///…`. scratch: a local folder. May be used from any thread.

    What is put is durable when the call returns: it shares its flush with whatever else is written meanwhile. What this
    process put just now is read from memory, even if another process has deleted it since; `facts` are the database's.
    """

    def __init__(self, db: Database, scratch: Path) -> None:
        self._db = db
        self._scratch = scratch
        self._recent = Recent()

    def put_if_absent(self, uri: str, data: bytes) -> ObjectFacts:
        return self.put_many([(uri, data)])[0]

    def put_many(self, items: Sequence[tuple[str, bytes]]) -> list[ObjectFacts]:
        new = [_row(uri, data) for uri, data in items]
        facts = self._db.write_list(_put, new) if new else []
        self._recent.put(items)
        return facts

    def put_file_if_absent(self, uri: str, local: Path) -> ObjectFacts:
        facts = self.put_if_absent(uri, local.read_bytes())
        local.unlink(missing_ok=True)
        return facts

    def replace(self, uri: str, data: bytes) -> ObjectFacts:
        new = _row(uri, data)
        self._db.write(lambda connection: dialect.upsert(connection, blobs, [new], keys=["uri"]))
        self._recent.forget([uri])
        return _facts_of(new)

    def publish(self, source: str, target: str) -> None:
        self.publish_many([(source, target)])

    def publish_many(self, pairs: Sequence[tuple[str, str]]) -> None:
        if pairs:
            self._db.write_list(_publish, [{"source": source, "target": target} for source, target in pairs])
            self._recent.forget([target for _, target in pairs])
            self._recent.put([(target, data) for source, target in pairs if (data := self._recent.get(source))])

    def read(self, uri: str) -> bytes:
        data = self._recent.get(uri)
        return self._db.ask(lambda connection: _data(connection, uri)) if data is None else data

    def open(self, uri: str) -> BinaryIO:
        return io.BytesIO(self.read(uri))

    def facts(self, uri: str) -> ObjectFacts | None:
        row = self._db.ask(lambda connection: connection.execute(_FACTS, {"of_uri": uri}).one_or_none())
        return None if row is None else ObjectFacts(uri=row.uri, size=row.size, stamp=row.stamp)

    def list(self, prefix: str, *, unfinished: bool = False) -> Iterator[ObjectFacts]:  # noqa: ARG002 - puts are whole
        at = {"after": f"{prefix.rstrip('/')}/", "end": f"{prefix.rstrip('/')}0"}  # "0" follows "/"
        while True:
            page = self._db.ask(lambda connection: connection.execute(_LIST, at).all())
            yield from [ObjectFacts(uri=row.uri, size=row.size, stamp=row.stamp) for row in page]
            if len(page) < _PAGE:
                return
            at["after"] = page[-1].uri

    def delete(self, uri: str) -> None:
        self.delete_many([uri])

    def delete_many(self, uris: Sequence[str]) -> None:
        names = list(uris)

        def work(connection: sa.Connection) -> None:
            connection.execute(blobs.delete().where(dialect.among(connection, _blob.uri, names)))

        if names:
            self._db.write(work)
            self._recent.forget(names)

    def link(self, uri: str, seconds: int) -> str | None:  # noqa: ARG002 - a row has no address elsewhere
        return None

    def sync(self, folder: str) -> None:
        """Nothing to do: every write was durable."""

    def scratch(self, near: str) -> Path:  # noqa: ARG002 - all of them are put from the same place
        self._scratch.mkdir(parents=True, exist_ok=True)
        return self._scratch / f"{secrets.token_hex(8)}.tmp"


def _row(uri: str, data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise Refused(reason=f"{uri} has {len(data):,} bytes; the database takes objects of up to {MAX_BYTES:,}")
    return {"uri": uri, "data": data, "size": len(data), "stamp": f"etag:{hashlib.sha256(data).hexdigest()}"}


def _facts_of(row: dict[str, Any]) -> ObjectFacts:
    return ObjectFacts(uri=row["uri"], size=row["size"], stamp=row["stamp"])


def _put(connection: sa.Connection, new: list[dict[str, Any]]) -> list[ObjectFacts]:
    """All by one statement, in the order of their names, in which other lists put theirs. Raises Exists."""
    made = dialect.insert_all_new(connection, blobs, sorted(new, key=itemgetter("uri")))
    for row in new if len(made) < len(new) else ():
        there = connection.execute(_FACTS, {"of_uri": row["uri"]}).one_or_none()
        if there is None or there.stamp != row["stamp"]:
            raise Exists(uri=row["uri"])
    return [_facts_of(row) for row in new]


def _publish(connection: sa.Connection, pairs: list[dict[str, str]]) -> list[None]:
    """Copied inside the database; where one is there already, or has nothing to copy, looked at one by one."""
    ordered = sorted(pairs, key=itemgetter("target"))
    copied = connection.execute(_copy(connection.dialect.name), ordered, execution_options=_COUNTED)
    if copied.rowcount != len(pairs):
        _put(connection, [_row(pair["target"], _data(connection, pair["source"])) for pair in ordered])
    return [None for _ in pairs]


@cache
def _copy(dialect_name: str) -> Any:
    from_there = sa.select(sa.bindparam("target", type_=sa.Text), _blob.size, _blob.stamp, _blob.data)
    mine = from_there.where(_blob.uri == sa.bindparam("source"))
    return dialect.insert_of(dialect_name, blobs).from_select(_COLUMNS, mine).on_conflict_do_nothing()


def _data(connection: sa.Connection, uri: str) -> bytes:
    data = connection.execute(_DATA, {"of_uri": uri}).scalar_one_or_none()
    if data is None:
        raise NotFound(kind="object", name=uri, hint="It may have been deleted or moved.")
    return bytes(data)
