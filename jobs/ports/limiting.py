"""Ports of rate limits: requests and tokens a minute, and requests at a time, of a key and of its tenant.

A replica of the API decides from what it holds ahead of each limit, its *allotment*; where that does not reach, it asks
the state that all replicas share, in rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
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
    """One request's share of its caller's limits. Exactly one of the two ends it; a second call does nothing.

    Neither waits, nor fails: what is given back goes to the shared state a little later.
    """

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


# ---- the shared state ---------------------------------------------------------------------------


class Kind(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    PLACES = "places"
    """Requests at a time."""


@dataclass(frozen=True, slots=True)
class Gauge(Value):
    """What a limit is about. scope: `key:ID` or `tenant:NAME`."""

    scope: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand(Value):
    """Units wanted of a limit: `cost` now, and `ahead` besides if there is plenty."""

    gauge: Gauge
    limit: int
    cost: int
    ahead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Value):
    """What a replica says to the shared state at once.

    holder: the replica; it says one round at a time. asks: each is granted in all its demands or in none.
    back: (gauge, limit, units) of rates that it took and did not use; negative: used without having taken them.
    held: places that it holds, by scope, before it asks for more, with their limit; its claim lasts for lease_s.
    """

    holder: str
    lease_s: float
    asks: Sequence[Sequence[Demand]] = ()
    back: Sequence[tuple[Gauge, int, int]] = ()
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level(Value):
    """A limit as the shared state has it. remaining: units that nobody holds. reset_s: until all are there again; 0 for
    places.
    """

    remaining: int
    reset_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Value):
    """The answer to one ask. refused: which of its demands there is no room for, with the longest wait; None: granted.

    ahead: units granted ahead, by demand. levels: by demand, after it. wait_s: of a refusal; None where it can never be
    granted.
    """

    refused: int | None = None
    wait_s: float | None = None
    ahead: Sequence[int] = ()
    levels: Sequence[Level] = ()


class RateStore(Protocol):
    """The state of all limits. A method is one transaction; each raises Unavailable."""

    def take_rates(self, said: Round) -> list[Verdict]:
        """First what comes back, then the asks in their order, a verdict for each."""
        ...

    def rate_levels(self, limits: Sequence[tuple[Gauge, int]]) -> list[Level]:
        """How limits stand, in order; changes nothing."""
        ...
