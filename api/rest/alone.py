"""What an app has that was given nothing better: no worker takes its requests, and nothing is limited."""

from __future__ import annotations

from jobs.ports.limiting import Hold, Standing
from jobs.ports.live import Hear
from jobs.requests import End, Ended, LiveRequest
from jobs.tenancy import ApiKey, Tenant


class NoFront:
    """`jobs.ports.live.Front` without workers."""

    def ask(self, request: LiveRequest, hear: Hear) -> None:
        hear(Ended(end=End.REFUSED, reason=f"nothing takes requests of {request.model} here"))

    def leave(self, request_id: str) -> None:
        pass

    def serves(self, model: str) -> bool:  # noqa: ARG002 - the port's
        return False


class _Free:
    """A share of nothing."""

    standing = Standing()

    def settle(self, tokens: int) -> None:
        pass

    def release(self) -> None:
        pass


class NoLimits:
    """`jobs.ports.limiting.Limiter` that lets all pass."""

    def quick(self, key: ApiKey, tenant: Tenant, tokens: int) -> Hold:
        return self.hold(key, tenant, tokens)

    def hold(self, key: ApiKey, tenant: Tenant, tokens: int) -> Hold:  # noqa: ARG002 - the port's
        return _FREE


_FREE = _Free()
