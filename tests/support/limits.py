"""Rate limits for tests: their shared state in memory, and callers that have limits."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from infra.clocks import ManualClock
from jobs.allotting import NS, Shared
from jobs.errors import DatabaseUnavailable
from jobs.limiting import SharedLimiter
from jobs.ports.limiting import Gauge, Kind, Level, Round, Verdict
from jobs.tenancy import ApiKey, Tenant
from tests.support.filing import a_key

FREE = Tenant(name="default")


class MemoryRates:
    """`jobs.ports.limiting.RateStore`. rounds: all that was said; away: no answer; missed: how often."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tats: dict[Gauge, int] = {}
        self._leases: dict[tuple[str, str], tuple[int, float]] = {}
        self.rounds: list[Round] = []
        self.away = False
        self.missed = 0

    def take_rates(self, said: Round) -> list[Verdict]:
        with self._lock:
            self._reach()
            self.rounds.append(said)
            shared = self._shared(said.holder)
            verdicts = shared.decide(said)
            self._tats = shared.tats
            for scope, places in shared.held.items():
                self._leases[scope, said.holder] = places, self._clock.now() + said.lease_s
            return verdicts

    def rate_levels(self, limits: Sequence[tuple[Gauge, int]]) -> list[Level]:
        with self._lock:
            self._reach()
            shared = self._shared("")
            return [shared.level(gauge, limit) for gauge, limit in limits]

    def _shared(self, holder: str) -> Shared:
        others: dict[str, int] = {}
        for (scope, who), (places, until) in self._leases.items():
            if who != holder and until > self._clock.now():
                others[scope] = others.get(scope, 0) + places
        return Shared(now_ns=int(self._clock.now() * NS), tats=dict(self._tats), others=others)

    def _reach(self) -> None:
        if self.away:
            self.missed += 1
            raise DatabaseUnavailable(where="memory", reason="the test took it away")


def limited(key_id: str = "key_a", **limits: int) -> ApiKey:
    """A key with limits: requests, tokens, places."""
    names = {"requests": "requests_per_minute", "tokens": "tokens_per_minute", "places": "concurrent_requests"}
    return a_key(key_id, **{names[name]: limit for name, limit in limits.items()})


def level(store: MemoryRates, kind: Kind, limit: int, scope: str = "key:key_a") -> int:
    """Units that nobody holds."""
    return store.rate_levels([(Gauge(scope, kind), limit)])[0].remaining


def replicas(store: MemoryRates, clock: ManualClock, count: int) -> list[SharedLimiter]:
    return [SharedLimiter(store, clock, f"replica-{number}") for number in range(count)]
