"""API keys in SQL: their digests, never the keys."""

from __future__ import annotations

from typing import Any

import orjson
import sqlalchemy as sa

from infra.sql import codec, dialect, tenantstore, trail
from infra.sql import tables_filing as tables
from infra.sql.shelf import Shelf, all_of
from jobs.errors import Conflict, NotFound
from jobs.tenancy import ApiKey, RequestLimits, Role, Scope, Tenant

_keys = tables.api_keys.c
_AS_THEY_ARE = tuple(name for name in ApiKey.__slots__ if name not in {"role", "scopes"})

_OF_DIGEST = (
    sa.select(tables.api_keys)
    .join(tables.tenants, tables.tenants.c.name == _keys.tenant)
    .add_columns(*(column.label(f"tenant_{column.name}") for column in tables.tenants.c))
    .where(_keys.digest == sa.bindparam("of_digest"))
)  # made once: every request asks it


class SqlKeys(Shelf):
    """The keys of `jobs.ports.tenancy.TenantStore`."""

    def add_key(self, key: ApiKey, actor: str) -> ApiKey:
        return self._db.write(lambda c: _add(c, key, actor, now=self._db.now(c)))

    def replace_key(self, key: ApiKey, *, overlap_s: float, actor: str) -> ApiKey:
        def work(connection: sa.Connection) -> ApiKey:
            now = self._db.now(connection)
            if (made := _find(connection, key.id)) is not None and made.digest == key.digest:
                return made  # an earlier run of this, whose commit was not answered
            old = _locked(connection, key.replaces or "", key.tenant)
            if not old.opens(now):
                raise Conflict(reason=f"key {old.id} has ended already")
            new = _add(connection, key, actor, now=now)
            _end(connection, old, now + overlap_s, actor, now=now)
            return new

        return self._db.write(work)

    def key(self, key_id: str, tenant: str | None = None) -> ApiKey:
        found = self._db.ask(lambda c: _find(c, key_id))
        if found is None or tenant not in {None, found.tenant}:
            raise _unknown(key_id)
        return found

    def key_by_digest(self, digest: str) -> tuple[ApiKey, Tenant] | None:
        row = self._db.ask(lambda c: c.execute(_OF_DIGEST, {"of_digest": digest}).one_or_none())
        if row is None:
            return None
        names = tables.tenants.c.keys()
        return _key(row), Tenant(**{name: getattr(row, f"tenant_{name}") for name in names})

    def keys(self, tenant: str | None = None, *, after: str | None = None, limit: int | None = None) -> list[ApiKey]:
        query = sa.select(tables.api_keys).order_by(_keys.created_at.desc(), _keys.id.desc()).limit(limit)
        if tenant is not None:
            query = query.where(_keys.tenant == tenant)
        if after is not None:
            last = self.key(after, tenant)
            query = query.where(sa.tuple_(_keys.created_at, _keys.id) < (last.created_at, last.id))
        return [_key(row) for row in self._db.ask(all_of(query))]

    def end_key(self, key_id: str, *, tenant: str | None, at: float | None, actor: str) -> ApiKey:
        def work(connection: sa.Connection) -> ApiKey:
            now = self._db.now(connection)
            return _end(connection, _locked(connection, key_id, tenant), at or now, actor, now=now)

        return self._db.write(work)

    def limit_key(self, key_id: str, limits: RequestLimits, *, tenant: str | None, actor: str) -> ApiKey:
        def work(connection: sa.Connection) -> ApiKey:
            key = _locked(connection, key_id, tenant)
            changed = {name: to for name, to in limits.fields.items() if getattr(key, name) != to}
            if changed:
                connection.execute(tables.api_keys.update().where(_keys.id == key.id).values(changed))
                detail = " ".join([f"{key.shown}…", *(f"{name}={to}" for name, to in changed.items())])
                _note(connection, "key.limited", key, detail, actor, self._db.now(connection))
            return key.evolve(**changed)

        return self._db.write(work)


def _add(connection: sa.Connection, key: ApiKey, actor: str, *, now: float) -> ApiKey:
    tenantstore.check_known(connection, key.tenant, now=now)
    key = key.evolve(created_at=key.created_at or now)
    if not dialect.insert_new(connection, tables.api_keys, _row(key)):
        had = _find(connection, key.id)
        if had is not None and had.digest == key.digest:  # an earlier run of this, whose commit was not answered
            return had
        raise Conflict(reason=f"there is a key {key.id}, or another one with the same text")
    detail = f"{key.shown}… role={key.role} scopes={','.join(sorted(key.scopes))}"
    detail += f" expires_at={key.expires_at}" if key.expires_at is not None else ""
    detail += f" replaces={key.replaces}" if key.replaces else ""
    detail += "".join(f" {name}={to}" for name, to in RequestLimits.of(key).fields.items() if to is not None)
    _note(connection, "key.created", key, detail, actor, now)
    return key


def _end(connection: sa.Connection, key: ApiKey, at: float, actor: str, *, now: float) -> ApiKey:
    if key.revoked_at is not None and key.revoked_at <= at:
        return key
    connection.execute(tables.api_keys.update().where(_keys.id == key.id).values(revoked_at=at))
    _note(connection, "key.revoked", key, f"{key.shown}… at={at}", actor, now)
    return key.evolve(revoked_at=at)


def _locked(connection: sa.Connection, key_id: str, tenant: str | None) -> ApiKey:
    """For a change. Raises NotFound, also for another tenant's."""
    found = _find(connection, key_id, lock=True)
    if found is None or tenant not in {None, found.tenant}:
        raise _unknown(key_id)
    return found


def _find(connection: sa.Connection, key_id: str, *, lock: bool = False) -> ApiKey | None:
    query = sa.select(tables.api_keys).where(_keys.id == key_id)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _key(row)


def _row(key: ApiKey) -> dict[str, Any]:
    row = {name: getattr(key, name) for name in _AS_THEY_ARE}
    said = {"name": codec.storable(key.name), "project": codec.storable(key.project)}
    return row | said | {"role": key.role.value, "scopes": codec.encode(sorted(key.scopes))}


def _key(row: Any) -> ApiKey:
    scopes = frozenset(Scope(name) for name in orjson.loads(row.scopes))
    values = {name: getattr(row, name) for name in _AS_THEY_ARE}
    return ApiKey(role=Role(row.role), scopes=scopes, **values)


def _unknown(key_id: str) -> NotFound:
    return NotFound(kind="API key", name=key_id, hint="List the keys there are: nightmill keys list")


def _note(connection: sa.Connection, action: str, key: ApiKey, detail: str, actor: str, now: float) -> None:
    trail.write(connection, action, actor=actor, tenant=key.tenant, subject=key.id, detail=detail, at=now)
