"""The tenancy port: tenants, keys, grants, aliases and the audit log; part of the database, a transaction a method.

What is changed here is written with its audit event in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jobs.tenancy import Alias, ApiKey, AuditEvent, Grant, RequestLimits, Tenant


class TenantStore(Protocol):
    """Times that are 0.0 in what is given are set by the database's clock. The tenant `default` is always there."""

    def put_tenant(self, tenant: Tenant, actor: str) -> Tenant:
        """Make a tenant, or change its title, limits or `disabled_at`. What changes nothing is not noted."""
        ...

    def tenant(self, name: str) -> Tenant:
        """Raises NotFound."""
        ...

    def tenants(self) -> list[Tenant]:
        """By name."""
        ...

    def add_key(self, key: ApiKey, actor: str) -> ApiKey:
        """Raises NotFound where the tenant is not known, Conflict where the id or digest is taken."""
        ...

    def key_by_digest(self, digest: str) -> tuple[ApiKey, Tenant] | None:
        """Whatever its state: the caller asks `opens`. By index."""
        ...

    def keys(self, tenant: str | None = None, *, after: str | None = None, limit: int | None = None) -> list[ApiKey]:
        """The newest first; after: this key of the same tenant. Raises NotFound for one that it has not."""
        ...

    def replace_key(self, key: ApiKey, *, overlap_s: float, actor: str) -> ApiKey:
        """As `add_key`; and the key that it `replaces` ends so long after. Raises Conflict where that has ended."""
        ...

    def key(self, key_id: str, tenant: str | None = None) -> ApiKey:
        """Raises NotFound, also for another tenant's."""
        ...

    def end_key(self, key_id: str, *, tenant: str | None, at: float | None, actor: str) -> ApiKey:
        """Revoke a key at a time (None: now). An earlier end stays. Raises NotFound, also for another tenant's."""
        ...

    def limit_key(self, key_id: str, limits: RequestLimits, *, tenant: str | None, actor: str) -> ApiKey:
        """Set all limits of a key. What changes nothing is not noted. Raises NotFound, also for another tenant's."""
        ...

    def put_grant(self, grant: Grant, actor: str) -> None:
        """Add a grant, or change whether it lets write. Raises NotFound where the tenant is not known."""
        ...

    def remove_grant(self, tenant: str, prefix: str, actor: str) -> bool:
        """Whether there was one."""
        ...

    def grants(self, tenant: str) -> list[Grant]:
        """By prefix."""
        ...

    def put_alias(self, alias: Alias, actor: str) -> None:
        """Add an alias, or point it elsewhere. Raises NotFound where it is for one tenant that is not known."""
        ...

    def remove_alias(self, alias: str, tenant: str, actor: str) -> bool:
        """Whether there was one."""
        ...

    def aliases(self, tenant: str | None = None) -> list[Alias]:
        """All, or those a tenant sees: its own and those for all."""
        ...

    def note(self, event: AuditEvent) -> None:
        """Write an event that goes with no change here (prices, operator reads)."""
        ...

    def audit(self, *, tenant: str | None = None, limit: int = 100) -> Sequence[AuditEvent]:
        """The newest first."""
        ...
