"""What a tenant's batches hold of its quota: one counter a tenant, moved only where it then stays within the limit."""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql import dialect
from infra.sql import tables_filing as tables
from jobs.errors import QuotaExceeded

_quotas, _tenants = tables.quotas.c, tables.tenants.c
_NO_LIMIT = (1 << 63) - 1
_tenant: sa.BindParameter[str] = sa.bindparam("of_tenant")
_more: sa.BindParameter[int] = sa.bindparam("more", type_=sa.BigInteger)
_LIMIT = sa.func.coalesce(
    sa.select(_tenants.enqueued_tokens_limit).where(_tenants.name == _tenant).scalar_subquery(),
    sa.literal(_NO_LIMIT, sa.BigInteger),
)
_RETURN = (
    tables.quotas.update().where(_quotas.tenant == _tenant).values(enqueued_tokens=_quotas.enqueued_tokens + _more)
)
_HOLD = _RETURN.where(_quotas.enqueued_tokens + _more <= _LIMIT)


def hold(connection: sa.Connection, tenant: str, tokens: int) -> QuotaExceeded | None:
    """Hold so many tokens more (or, negative, fewer); the error where there is no room, and then nothing was changed.

    The error is handed back, not raised: a transaction that others share need not be rolled back for it.
    """
    if not tokens:
        return None
    move = _HOLD if tokens > 0 else _RETURN
    asked = {"of_tenant": tenant, "more": tokens}
    if connection.execute(move, asked).rowcount:
        return None
    dialect.insert_new(connection, tables.quotas, {"tenant": tenant, "enqueued_tokens": 0})  # or another did
    if connection.execute(move, asked).rowcount:
        return None
    limit = connection.execute(sa.select(_LIMIT), {"of_tenant": tenant}).scalar_one()
    return QuotaExceeded(tenant=tenant, limit=limit, enqueued=held(connection, tenant), asked=tokens)


def held(connection: sa.Connection, tenant: str) -> int:
    """Tokens held now."""
    query = sa.select(_quotas.enqueued_tokens).where(_quotas.tenant == tenant)
    return connection.execute(query).scalar_one_or_none() or 0
