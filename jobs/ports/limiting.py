"""Port of rate limits: requests and tokens a minute, and requests at a time, of a key and of its tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from jobs.model import Value
from jobs.tenancy import ApiKey, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing(Value):
    """The narrowest of the caller's limits, for the six `x-ratelimit-*` headers; None where there is no limit.

    reset_…_s: seconds until all of it is there again.
    """

    limit_requests: int | None = None
    remaining_requests: int | None = None
    reset_requests_s: float | None = None
    limit_tokens: int | None = None
    remaining_tokens: int | None = None
    reset_tokens_s: float | None = None


class Hold(Protocol):
    """One request's share of its caller's limits. Exactly one of the two ends it; a second call does nothing."""

    @property
    def standing(self) -> Standing:
        """When it was taken."""
        ...

    def settle(self, tokens: int) -> None:
        """The request was served: what it did not use of its tokens is given back, what it used more is taken."""
        ...

    def release(self) -> None:
        """It was not served: as if it had never asked."""
        ...


class Limiter(Protocol):
    """Limits with state that all replicas share. What has no limit costs nothing."""

    def quick(self, key: ApiKey, tenant: Tenant, tokens: int) -> Hold | None:
        """Decide from what this replica holds ahead; never waits. None: it has to ask, see `hold`."""
        ...

    def hold(self, key: ApiKey, tenant: Tenant, tokens: int) -> Hold:
        """As `quick`, asking the shared state where needed; for a thread that may wait.

        All of the caller's limits or none is taken. Raises RateLimited (a QuotaExceeded: which limit, `retry_after_s`,
        its `standing`), which changes no counter; Unavailable.
        """
        ...
