"""What one replica holds of a limit: units that it took from the shared state ahead of use, and places in use. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jobs.errors import RateLimited
from jobs.model import Value
from jobs.ports.limiting import Demand, Gauge, Kind, Level, Standing
from jobs.tenancy import ApiKey, Tenant

LimitName = Literal["requests_per_minute", "tokens_per_minute", "concurrent_requests"]
FIELDS: Mapping[Kind, LimitName] = {
    Kind.REQUESTS: "requests_per_minute",
    Kind.TOKENS: "tokens_per_minute",
    Kind.PLACES: "concurrent_requests",
}
"""What a key and a tenant call their limits."""
_MINUTE_S = 60.0
_WHAT = {Kind.REQUESTS: "requests a minute", Kind.TOKENS: "tokens a minute", Kind.PLACES: "requests at a time"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllotmentPolicy(Value):
    """ahead_s: of a rate, so many seconds' worth are taken ahead, at most `most` of the limit; of places this share.

    idle_s: what was not touched for so long is given back. forget_s: and what was not for so long is not even that:
    it has flowed off. lease_s: places of a replica that says nothing lapse then. gather_s: how long what comes back
    waits for more of it.
    """

    ahead_s: float = 1.0
    most: float = 0.1
    places: float = 1 / 16
    idle_s: float = 1.0
    forget_s: float = 60.0
    lease_s: float = 15.0
    gather_s: float = 0.05

    def ahead(self, kind: Kind, limit: int, cost: int) -> int:
        """Units to take ahead; none where they would not do for a request like this one: others would miss them."""
        share = self.places if kind is Kind.PLACES else min(self.ahead_s / _MINUTE_S, self.most)
        units = int(limit * share)
        return units if units >= cost else 0


_USUAL = AllotmentPolicy()


@dataclass(slots=True, kw_only=True)
class Allotment:
    """free: units to use here; negative: used past what was reserved, still to be told. used: places in use.

    told: places that the shared state knows of, None: not known. level: when it was last asked, at `asked_at`. Times
    are monotonic.
    """

    gauge: Gauge
    limit: int
    ahead: int
    free: int = 0
    used: int = 0
    told: int | None = 0
    told_at: float = 0.0
    touched: float = 0.0
    level: Level | None = None
    asked_at: float = 0.0

    @property
    def places(self) -> bool:
        return self.gauge.kind is Kind.PLACES

    @property
    def held(self) -> int:
        """Places."""
        return self.free + self.used if self.places else 0

    @property
    def empty(self) -> bool:
        """Whether nothing would be lost with it."""
        return not (self.free or self.used or self.told != 0)

    def spend(self, units: int, now: float) -> None:
        """Use of what is free."""
        self.free -= units
        self.used += units if self.places else 0
        self.touched = now

    def restore(self, units: int) -> None:
        """What was spent is free again; negative: more was used than was spent."""
        self.free += units
        self.used -= units if self.places else 0

    def spare(self, now: float, policy: AllotmentPolicy) -> int:
        """Units that others should have back; negative: that it owes."""
        keep = self.ahead if now - self.touched < policy.idle_s else 0
        return min(self.free, 0) or max(0, self.free - keep)

    def stand(self, now: float) -> tuple[int, float]:
        """(units that its caller could still have, seconds until all of it), as far as is known here."""
        level = self.level or Level(remaining=self.limit)
        passed = max(0.0, now - self.asked_at)
        flowed_off = 0 if self.places else int(self.limit * passed / _MINUTE_S)
        remaining = min(self.limit, level.remaining + flowed_off + max(0, self.free))
        return remaining, max(0.0, level.reset_s - passed)


def demands_of(key: ApiKey, tenant: Tenant, tokens: int = 0, policy: AllotmentPolicy = _USUAL) -> tuple[Demand, ...]:
    """What a request takes of its caller's limits; empty where there are none."""
    found = []
    for whose, scope in ((key, f"key:{key.id}"), (tenant, f"tenant:{tenant.name}")):
        for kind, field in FIELDS.items():
            limit: int | None = getattr(whose, field)
            if limit is not None:
                cost = tokens if kind is Kind.TOKENS else 1
                ahead = policy.ahead(kind, limit, cost)
                found.append(Demand(gauge=Gauge(scope, kind), limit=limit, cost=cost, ahead=ahead))
    return tuple(found)


def standing_of(allotments: Iterable[Allotment], now: float) -> Standing:
    """The narrowest of each kind."""
    facts: dict[str, int | float] = {}
    for kind in (Kind.REQUESTS, Kind.TOKENS):
        mine = [(*a.stand(now), a.limit) for a in allotments if a.gauge.kind is kind]
        if mine:
            remaining, reset_s, limit = min(mine)
            facts |= {f"limit_{kind}": limit, f"remaining_{kind}": remaining, f"reset_{kind}_s": reset_s}
    return Standing(**facts)  # type: ignore[arg-type]  # its fields are named so


def refusal(demand: Demand, wait_s: float | None, allotments: Sequence[Allotment], now: float) -> RateLimited:
    """The error of an ask that was refused for this demand."""
    whose, _, name = demand.gauge.scope.partition(":")
    if wait_s is None:
        reason = f"this asks for {demand.cost:,}, which can never be granted"
    elif demand.gauge.kind is Kind.PLACES:
        reason = "all of them are under way"
    else:
        reason = f"this asks for {demand.cost:,} more, for which there is room in {wait_s:.3g} s"
    return RateLimited(
        who=f"API key {name}" if whose == "key" else f"Tenant {name}",
        limit=f"{demand.limit:,}",
        what=_WHAT[demand.gauge.kind],
        reason=reason,
        retry_after_s=wait_s,
        standing=standing_of(allotments, now),
    )
