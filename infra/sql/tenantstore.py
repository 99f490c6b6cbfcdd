"""Tenants in SQL."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from infra.sql import dialect, trail
from infra.sql import tables_filing as tables
from infra.sql.shelf import Shelf, all_of
from jobs.errors import NotFound
from jobs.tenancy import DEFAULT_TENANT, ITSELF, Tenant

_tenants = tables.tenants.c


class SqlTenants(Shelf):
    """The tenants of `jobs.ports.tenancy.TenantStore`."""

    def put_tenant(self, tenant: Tenant, actor: str) -> Tenant:
        return self._db.write(lambda c: put(c, tenant, actor, now=self._db.now(c)))

    def tenant(self, name: str) -> Tenant:
        found = self._db.ask(lambda c: _find(c, name))
        if found is None and name == DEFAULT_TENANT:
            return self.put_tenant(Tenant(name=DEFAULT_TENANT), ITSELF)
        if found is None:
            raise unknown(name)
        return found

    def tenants(self) -> list[Tenant]:
        self.tenant(DEFAULT_TENANT)
        query = sa.select(tables.tenants).order_by(_tenants.name)
        return [tenant_of(row) for row in self._db.ask(all_of(query))]


def put(connection: sa.Connection, tenant: Tenant, actor: str, *, now: float) -> Tenant:
    """Make it or change it, with its event; what is as it should be already is left so, and no event written."""
    new = _row(tenant, now)
    if dialect.insert_new(connection, tables.tenants, new):
        given = {name: value for name, value in new.items() if value not in {None, ""}}
        trail.write(
            connection,
            "tenant.created",
            actor=actor,
            tenant=tenant.name,
            subject=tenant.name,
            detail=_said(given),
            at=now,
        )
        return Tenant(**new)
    had = connection.execute(sa.select(tables.tenants).where(_tenants.name == tenant.name).with_for_update()).one()
    kept = {"created_at": had.created_at}
    if tenant.disabled_at is not None and had.disabled_at is not None:
        kept["disabled_at"] = had.disabled_at
    new |= kept
    changed = {name: value for name, value in new.items() if getattr(had, name) != value}
    if changed:
        connection.execute(tables.tenants.update().where(_tenants.name == tenant.name).values(changed))
        trail.write(
            connection,
            "tenant.changed",
            actor=actor,
            tenant=tenant.name,
            subject=tenant.name,
            detail=_said(changed),
            at=now,
        )
    return Tenant(**new)


def check_known(connection: sa.Connection, name: str, *, now: float) -> None:
    """Raises NotFound; the default tenant is made where it is missing."""
    if _find(connection, name) is not None:
        return
    if name != DEFAULT_TENANT:
        raise unknown(name)
    put(connection, Tenant(name=DEFAULT_TENANT), ITSELF, now=now)


def unknown(name: str) -> NotFound:
    """The error for a tenant that is not there."""
    return NotFound(kind="tenant", name=name, hint=f"Add it: nightmill tenants add {name}")


def tenant_of(row: Any) -> Tenant:
    """From a row that has all columns of `tenants`."""
    return Tenant(**{name: getattr(row, name) for name in _tenants.keys()})  # noqa: SIM118  # a column collection


def _find(connection: sa.Connection, name: str) -> Tenant | None:
    row = connection.execute(sa.select(tables.tenants).where(_tenants.name == name)).one_or_none()
    return None if row is None else tenant_of(row)


def _row(tenant: Tenant, now: float) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "title": tenant.title,
        "enqueued_tokens_limit": tenant.enqueued_tokens_limit,
        "requests_per_minute": tenant.requests_per_minute,
        "tokens_per_minute": tenant.tokens_per_minute,
        "concurrent_requests": tenant.concurrent_requests,
        "created_at": tenant.created_at or now,
        "disabled_at": now if tenant.disabled_at == 0 else tenant.disabled_at,
    }


def _said(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items() if name not in {"name", "created_at"})
