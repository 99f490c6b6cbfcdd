"""Small objects in the database: `db:///…` URIs. A file costs a flush of its own; a row shares one with others.

For jobs of a few kilobytes, which come by the thousand. Larger ones belong into a folder or a bucket.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa

from infra.sql import dialect
from infra.sql.engine import Database
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
_DATA = sa.select(_blob.data).where(_blob.uri == sa.bindparam("of_uri"))


class SqlObjects:
    """`jobs.ports.objects.Objects` over `db:///…`. scratch: a local folder. May be used from any thread.

    What is put is durable when the call returns: it shares its flush with whatever else is written meanwhile.
    """

    def __init__(self, db: Database, scratch: Path) -> None:
        self._db = db
        self._scratch = scratch

    def put_if_absent(self, uri: str, data: bytes) -> ObjectFacts:
        return self.put_many([(uri, data)])[0]

    def put_many(self, items: Sequence[tuple[str, bytes]]) -> list[ObjectFacts]:
        new = [_row(uri, data) for uri, data in items]

        def work(connection: sa.Connection) -> None:
            _put(connection, new)

        if new:
            self._db.write(work)
        return [_facts_of(row) for row in new]

    def put_file_if_absent(self, uri: str, local: Path) -> ObjectFacts:
        facts = self.put_if_absent(uri, local.read_bytes())
        local.unlink(missing_ok=True)
        return facts

    def replace(self, uri: str, data: bytes) -> ObjectFacts:
        new = _row(uri, data)
        self._db.write(lambda connection: dialect.upsert(connection, blobs, [new], keys=["uri"]))
        return _facts_of(new)

    def publish(self, source: str, target: str) -> None:
        self.publish_many([(source, target)])

    def publish_many(self, pairs: Sequence[tuple[str, str]]) -> None:
        def work(connection: sa.Connection) -> None:
            _put(connection, [_row(target, _data(connection, source)) for source, target in pairs])

        if pairs:
            self._db.write(work)

    def read(self, uri: str) -> bytes:
        return self._db.ask(lambda connection: _data(connection, uri))

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


def _put(connection: sa.Connection, new: Sequence[dict[str, Any]]) -> None:
    """All by one statement, in the order of their names, in which other lists put theirs. Raises Exists."""
    put = dialect.insert(connection, blobs).on_conflict_do_nothing()
    if connection.execute(put, sorted(new, key=itemgetter("uri"))).rowcount == len(new):
        return
    for row in new:
        there = connection.execute(_FACTS, {"of_uri": row["uri"]}).one_or_none()
        if there is None or there.stamp != row["stamp"]:
            raise Exists(uri=row["uri"])


def _data(connection: sa.Connection, uri: str) -> bytes:
    data = connection.execute(_DATA, {"of_uri": uri}).scalar_one_or_none()
    if data is None:
        raise NotFound(kind="object", name=uri, hint="It may have been deleted or moved.")
    return bytes(data)
