"""Storage grants and names of models in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql import dialect, tenantstore, trail
from infra.sql import tables_filing as tables
from infra.sql.shelf import Shelf, all_of
from jobs.tenancy import Alias, Grant

_grants, _aliases = tables.grants.c, tables.aliases.c
_ALL_ALIASES = sa.select(tables.aliases).order_by(_aliases.alias, _aliases.tenant)
_SEEN_ALIASES = _ALL_ALIASES.where(_aliases.tenant.in_([sa.literal(""), sa.bindparam("by_tenant")]))


class SqlGrants(Shelf):
    """The grants and aliases of `jobs.ports.tenancy.TenantStore`."""

    def put_grant(self, grant: Grant, actor: str) -> None:
        def work(connection: sa.Connection) -> None:
            now = self._db.now(connection)
            tenantstore.check_known(connection, grant.tenant, now=now)
            mine = sa.and_(_grants.tenant == grant.tenant, _grants.prefix == grant.prefix)
            row = {"tenant": grant.tenant, "prefix": grant.prefix, "write": grant.write}
            new = dialect.insert_new(connection, tables.grants, row | {"created_at": grant.created_at or now})
            other = tables.grants.update().where(mine, _grants.write != grant.write).values(write=grant.write)
            if new or connection.execute(other).rowcount:
                access = "read and write" if grant.write else "read"
                what = {"tenant": grant.tenant, "subject": grant.prefix, "detail": access}
                trail.write(connection, "grant.set", actor=actor, at=now, **what)

        self._db.write(work)

    def remove_grant(self, tenant: str, prefix: str, actor: str) -> bool:
        mine = tables.grants.delete().where(_grants.tenant == tenant, _grants.prefix == prefix)
        return self._remove(mine, "grant.removed", tenant, prefix, actor)

    def grants(self, tenant: str) -> list[Grant]:
        query = sa.select(tables.grants).where(_grants.tenant == tenant).order_by(_grants.prefix)
        return [Grant(**row._asdict()) for row in self._db.ask(all_of(query))]

    def put_alias(self, alias: Alias, actor: str) -> None:
        def work(connection: sa.Connection) -> None:
            now = self._db.now(connection)
            if alias.tenant:
                tenantstore.check_known(connection, alias.tenant, now=now)
            mine = sa.and_(_aliases.tenant == alias.tenant, _aliases.alias == alias.alias)
            row = {"tenant": alias.tenant, "alias": alias.alias, "model": alias.model}
            new = dialect.insert_new(connection, tables.aliases, row)
            other = tables.aliases.update().where(mine, _aliases.model != alias.model).values(model=alias.model)
            if new or connection.execute(other).rowcount:
                what = {"tenant": alias.tenant, "subject": alias.alias, "detail": alias.model}
                trail.write(connection, "alias.set", actor=actor, at=now, **what)

        self._db.write(work)

    def remove_alias(self, alias: str, tenant: str, actor: str) -> bool:
        mine = tables.aliases.delete().where(_aliases.tenant == tenant, _aliases.alias == alias)
        return self._remove(mine, "alias.removed", tenant, alias, actor)

    def aliases(self, tenant: str | None = None) -> list[Alias]:
        if tenant is None:
            found = self._db.ask(all_of(_ALL_ALIASES))
        else:
            found = self._db.ask(lambda c: c.execute(_SEEN_ALIASES, {"by_tenant": tenant}).all())
        return [Alias(**row._asdict()) for row in found]

    def _remove(self, statement: sa.Delete, action: str, tenant: str, subject: str, actor: str) -> bool:
        runs: list[bool] = []

        def work(connection: sa.Connection) -> bool:
            runs.append(bool(connection.execute(statement).rowcount))
            if runs[-1]:
                at = self._db.now(connection)
                trail.write(connection, action, actor=actor, tenant=tenant, subject=subject, at=at)
            return any(runs)  # an earlier run removed it, and its commit was not answered

        return self._db.write(work)
