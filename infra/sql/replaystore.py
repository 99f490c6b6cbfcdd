"""Idempotency keys and the answers given for them, in SQL."""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa

from infra.sql import dialect
from infra.sql import tables_filing as tables
from infra.sql.shelf import Shelf
from jobs.ports.filing import Replay

_replays = tables.replays.c
_CHUNK = 1000  # rows deleted in one transaction
_NOBODY = ""
"""The claim on a key whose request was given up."""


class SqlReplays(Shelf):
    """`jobs.ports.filing.ReplayStore`."""

    def begin(self, tenant: str, key: str, digest: str, resource: str, *, stale_s: float) -> Replay:
        """A claim is random, so a second run of this knows what its first one wrote."""
        claim = secrets.token_hex(16)

        def work(connection: sa.Connection) -> Replay:
            now = self._db.now(connection)
            new = {
                "digest": digest,
                "resource": resource,
                "claim": claim,
                "begun_at": now,
                "status": None,
                "body": None,
            }
            while True:
                if dialect.insert_new(connection, tables.replays, {"tenant": tenant, "idempotency_key": key, **new}):
                    return Replay(digest=digest, resource=resource, mine=True, claim=claim)
                had = connection.execute(sa.select(tables.replays).where(_is(tenant, key))).one_or_none()
                if had is not None:  # else it was forgotten just now
                    break
            free = sa.or_(_replays.begun_at <= now - stale_s, _replays.claim == _NOBODY)
            heir = tables.replays.update().where(_is(tenant, key), _open_to(digest), free)
            heir = heir.values(claim=claim, begun_at=now)
            mine = had.claim == claim or bool(connection.execute(heir).rowcount)
            return _replay(had, claim=claim if mine else "")

        return self._db.write(work)

    def answered(self, tenant: str, key: str, status: int, body: bytes) -> None:
        first = tables.replays.update().where(_is(tenant, key), _replays.status.is_(None))
        self._db.write(lambda c: c.execute(first.values(status=status, body=body)).rowcount)

    def forget(self, tenant: str, key: str, claim: str) -> None:
        mine = tables.replays.delete().where(_held(tenant, key, claim))
        self._db.write(lambda c: c.execute(mine).rowcount)

    def give_up(self, tenant: str, key: str, claim: str) -> None:
        mine = tables.replays.update().where(_held(tenant, key, claim)).values(claim=_NOBODY)
        self._db.write(lambda c: c.execute(mine).rowcount)

    def forget_replays(self, older_than_s: float) -> int:
        """In chunks: nobody waits long for it."""
        gone = 0
        while True:
            some = self._db.write(lambda c: _forget_some(c, self._db.now(c) - older_than_s))
            gone += some
            if some < _CHUNK:
                return gone


def _forget_some(connection: sa.Connection, until: float) -> int:
    key = sa.tuple_(_replays.tenant, _replays.idempotency_key)
    oldest = sa.select(_replays.tenant, _replays.idempotency_key).where(_replays.begun_at <= until)
    some = oldest.order_by(_replays.begun_at).limit(_CHUNK)
    return connection.execute(tables.replays.delete().where(key.in_(some))).rowcount


def _is(tenant: str, key: str) -> sa.ColumnElement[bool]:
    return sa.and_(_replays.tenant == tenant, _replays.idempotency_key == key)


def _held(tenant: str, key: str, claim: str) -> sa.ColumnElement[bool]:
    return sa.and_(_is(tenant, key), _replays.claim == claim, _replays.status.is_(None))


def _open_to(digest: str) -> sa.ColumnElement[bool]:
    return sa.and_(_replays.status.is_(None), _replays.digest == digest)


def _replay(row: Any, *, claim: str) -> Replay:
    """claim: of a call that may act, else empty."""
    answer = None if row.status is None else (row.status, row.body)
    return Replay(digest=row.digest, resource=row.resource, answer=answer, mine=bool(claim), claim=claim)
