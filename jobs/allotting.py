"""What the shared state of rate limits answers. Pure; adapters read what it looks at and write its changes.

The bound: what all replicas let through and what they hold ahead is never more than the limit's burst and what flows
off. So an allotment makes no limit wider; it can only keep some from others for a while, and is therefore small, given
only where there is plenty, and given back when idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs import gcra
from jobs.gcra import Later
from jobs.ports.limiting import Demand, Gauge, Kind, Level, Round, Verdict

NS = 10**9
_PLENTY = 2
"""Units are given ahead while this part of the limit is left: its half."""
_PLACE_WAIT_S = 1.0
"""When a place gets free is not known."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """The state as a transaction sees it. tats: of rates, 0 where none is kept. others: places of other holders."""

    now_ns: int
    tats: dict[Gauge, int] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def decide(self, said: Round) -> list[Verdict]:
        """A verdict for each ask; `tats` and `held` are then what is to be kept."""
        self.held = dict(said.held)
        for gauge, limit, units in said.back:
            self._back(gauge, limit, units)
        return [self._judge(ask) for ask in said.asks]

    def level(self, gauge: Gauge, limit: int) -> Level:
        """How a limit stands."""
        if gauge.kind is Kind.PLACES:
            taken = self.others.get(gauge.scope, 0) + self.held.get(gauge.scope, 0)
            return Level(remaining=max(0, limit - taken))
        remaining, reset_ns = gcra.standing(self.tats.get(gauge, 0), self.now_ns, gcra.a_minute(limit))
        return Level(remaining=remaining, reset_s=reset_ns / NS)

    def _back(self, gauge: Gauge, limit: int, units: int) -> None:
        rate, tat = gcra.a_minute(limit), self.tats.get(gauge, 0)
        if units < 0:
            self.tats[gauge] = gcra.charge(tat, self.now_ns, -units, rate)
        else:
            self.tats[gauge] = gcra.give_back(tat, units, rate)

    def _judge(self, ask: Sequence[Demand]) -> Verdict:
        waits = [self._wait_s(demand) for demand in ask]
        if any(wait != 0 for wait in waits):
            worst = max(range(len(ask)), key=lambda n: float("inf") if (wait := waits[n]) is None else wait)
            levels = [self.level(demand.gauge, demand.limit) for demand in ask]
            return Verdict(refused=worst, wait_s=waits[worst], levels=levels)
        ahead = [self._take(demand) for demand in ask]
        return Verdict(ahead=ahead, levels=[self.level(demand.gauge, demand.limit) for demand in ask])

    def _wait_s(self, demand: Demand) -> float | None:
        """0: there is room. None: there never is."""
        if demand.gauge.kind is Kind.PLACES:
            room = self.level(demand.gauge, demand.limit).remaining
            return 0.0 if demand.cost <= room else _PLACE_WAIT_S
        rate = gcra.a_minute(demand.limit)
        found = gcra.take(self.tats.get(demand.gauge, 0), self.now_ns, demand.cost, rate)
        if not isinstance(found, Later):
            return 0.0
        return None if found.wait_ns is None else found.wait_ns / NS

    def _take(self, demand: Demand) -> int:
        """Units that were given ahead."""
        room = self.level(demand.gauge, demand.limit).remaining - demand.cost
        ahead = demand.ahead if _PLENTY * (room - demand.ahead) >= demand.limit else 0
        units = demand.cost + ahead
        if demand.gauge.kind is Kind.PLACES:
            self.held[demand.gauge.scope] = self.held.get(demand.gauge.scope, 0) + units
        else:
            tat = self.tats.get(demand.gauge, 0)
            self.tats[demand.gauge] = gcra.charge(tat, self.now_ns, units, gcra.a_minute(demand.limit))
        return ahead
