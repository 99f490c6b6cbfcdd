"""The rate limits of one replica: it decides from its allotments, and asks the state that all share in rounds.

Who asks while a round is under way goes with the next one, so many who ask at once cost one or two transactions. Rounds
of a replica follow one another, so that what it says of its places is always whole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jobs.allotment import Allotment, AllotmentPolicy, demands_of, refusal, standing_of
from jobs.ports.clock import Clock
from jobs.ports.limiting import Demand, Gauge, Hold, Kind, RateStore, Round, Standing, Verdict
from jobs.tenancy import ApiKey, Tenant

_RENEWALS = 3
"""In the time of a lease."""
_NO_LIMITS = Standing()


class SharedLimiter:
    """`jobs.ports.limiting.Limiter`. holder: names this replica, and no other one ever. `beat` is called by a loop."""

    def __init__(self, store: RateStore, clock: Clock, holder: str, policy: AllotmentPolicy | None = None) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self.policy = policy or AllotmentPolicy()
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # who has it says the next round
        self._allotments: dict[Gauge, Allotment] = {}
        self._asking: list[_Asker] = []
        self.changed = threading.Event()
        """Something is to be given back, or places are to be kept up: the loop calls `beat` soon."""

    def quick(self, key: ApiKey, tenant: Tenant, tokens: int) -> Hold | None:
        demands = demands_of(key, tenant, tokens, self.policy)
        if not demands:
            return _Hold(self, (), _NO_LIMITS)
        with self._lock:
            return self._from_hand(demands)

    def hold(self, key: ApiKey, tenant: Tenant, tokens: int) -> Hold:
        demands = demands_of(key, tenant, tokens, self.policy)
        asker = _Asker(demands)
        with self._lock:
            if (found := self._from_hand(demands)) is not None:
                return found
            self._asking.append(asker)
        while not asker.answered:
            with self._turn:
                if not asker.answered:
                    self._round()
        if asker.error is not None:
            raise asker.error
        assert asker.hold is not None
        return asker.hold

    def beat(self) -> float | None:
        """Give back what lies idle and keep the claim on places. Seconds until it wants to be called again, None: not
        before `changed`. Raises Unavailable.
        """
        self.changed.clear()
        with self._turn:
            if (error := self._round()) is not None:
                raise error
        with self._lock:
            if not self._allotments:
                return None
            return min(self.policy.idle_s, self.policy.lease_s / _RENEWALS)

    def leave(self) -> None:
        """The replica stops: all that is free is given back. Raises Unavailable."""
        with self._lock:
            for allotment in self._allotments.values():
                allotment.ahead = 0
        self.beat()

    # ---- from hand ------------------------------------------------------------------------------

    def _from_hand(self, demands: Sequence[Demand]) -> _Hold | None:
        now = self._clock.monotonic()
        mine = [self._of(demand, now) for demand in demands]
        if any(allotment.free < demand.cost for allotment, demand in zip(mine, demands, strict=True)):
            return None
        for allotment, demand in zip(mine, demands, strict=True):
            allotment.spend(demand.cost, now)
        return self._hold(demands, mine, now)

    def _of(self, demand: Demand, now: float) -> Allotment:
        found = self._allotments.get(demand.gauge)
        if found is None:
            found = Allotment(gauge=demand.gauge, limit=demand.limit, ahead=demand.ahead, touched=now)
            self._allotments[demand.gauge] = found
            self.changed.set()
        found.limit, found.ahead = demand.limit, demand.ahead
        return found

    def _hold(self, demands: Sequence[Demand], mine: Sequence[Allotment], now: float) -> _Hold:
        spent = [(allotment, demand.cost) for allotment, demand in zip(mine, demands, strict=True)]
        return _Hold(self, spent, standing_of(mine, now))

    def end(self, hold: _Hold, tokens: int | None) -> None:
        """tokens: that were used; None: it was not served. Twice is once."""
        if not hold.spent:
            return
        with self._lock:
            spent, hold.spent = hold.spent, ()
            now = self._clock.monotonic()
            for one, cost in spent:
                allotment = self._allotments.setdefault(one.gauge, one)  # a long one outlasts its allotment
                if tokens is None or allotment.places:
                    allotment.restore(cost)
                elif allotment.gauge.kind is Kind.TOKENS:
                    allotment.restore(cost - tokens)
                if allotment.spare(now, self.policy):
                    self.changed.set()

    # ---- rounds ---------------------------------------------------------------------------------

    def _round(self) -> BaseException | None:
        """Say one round, for all who ask by now. The error, if it was not answered; who asked has it too."""
        with self._lock:
            now = self._clock.monotonic()
            asking, self._asking = self._asking, []
            for asker in asking:
                self._spend(asker, now)
            said = self._said([asker for asker in asking if asker.lacks], now)
        try:
            verdicts = self._store.take_rates(said) if said.asks or said.back or said.held else []
            with self._lock:
                self._answered(asking, said, verdicts)
        except BaseException as error:  # noqa: BLE001  # it belongs to those who ask, none of whom may wait for ever
            self._unanswered(asking, said, error)
            return error
        return None

    def _spend(self, asker: _Asker, now: float) -> None:
        """What of its demands is at hand; what it lacks is asked for, with some ahead for the first who asks."""
        asker.at_hand, asker.lacks = [], []
        asker.mine = [self._of(demand, now) for demand in asker.demands]
        for allotment, demand in zip(asker.mine, asker.demands, strict=True):
            at_hand = min(max(0, allotment.free), demand.cost)
            allotment.spend(at_hand, now)
            asker.at_hand.append(at_hand)
            if at_hand < demand.cost:
                asker.lacks.append(demand.evolve(cost=demand.cost - at_hand))

    def _said(self, asking: Sequence[_Asker], now: float) -> Round:
        asked: set[Gauge] = set()
        for asker in asking:
            asker.lacks = [lack.evolve(ahead=0) if lack.gauge in asked else lack for lack in asker.lacks]
            asked |= {lack.gauge for lack in asker.lacks}
        back, held = [], {}
        for allotment in list(self._allotments.values()):
            spare = allotment.spare(now, self.policy)
            allotment.free -= spare
            if allotment.places:
                if self._to_tell(allotment, now) or allotment.gauge in asked:
                    held[allotment.gauge.scope] = allotment.held
            elif spare < 0 or (spare and now - allotment.touched < self.policy.forget_s):
                back.append((allotment.gauge, allotment.limit, spare))
            if allotment.empty and allotment.gauge not in asked and now - allotment.touched > self.policy.forget_s:
                del self._allotments[allotment.gauge]
        asks = [tuple(asker.lacks) for asker in asking]
        return Round(holder=self._holder, lease_s=self.policy.lease_s, asks=asks, back=back, held=held)

    def _to_tell(self, allotment: Allotment, now: float) -> bool:
        """Whether the shared state has another number of its places, or would soon let them lapse."""
        due = now - allotment.told_at > self.policy.lease_s / _RENEWALS
        return allotment.told != allotment.held or (due and allotment.held > 0)

    def _answered(self, asking: Iterable[_Asker], said: Round, verdicts: Iterable[Verdict]) -> None:
        now, verdict_of = self._clock.monotonic(), iter(verdicts)
        for scope, places in said.held.items():
            told = self._allotments[Gauge(scope, Kind.PLACES)]
            told.told, told.told_at = places, now
        for asker in asking:
            verdict = next(verdict_of) if asker.lacks else Verdict()
            self._note(asker, verdict, now)
            if verdict.refused is None:
                asker.hold = self._hold(asker.demands, asker.mine, now)
                continue
            asker.undo()
            lack = asker.lacks[verdict.refused]
            if asker.may_ask_again():
                self._asking.append(asker)
            else:
                asker.error = refusal(asker.whole(lack), verdict.wait_s, asker.mine, now)

    def _note(self, asker: _Asker, verdict: Verdict, now: float) -> None:
        for number, lack in enumerate(asker.lacks):
            allotment = self._allotments[lack.gauge]
            allotment.level, allotment.asked_at = verdict.levels[number], now
            if verdict.refused is None:
                units = lack.cost + verdict.ahead[number]
                allotment.free += units
                allotment.spend(lack.cost, now)
                if allotment.places and allotment.told is not None:
                    allotment.told += units

    def _unanswered(self, asking: Iterable[_Asker], said: Round, error: BaseException) -> None:
        """It may have been carried out. What came back is lost, but for what is owed; places are told anew."""
        with self._lock:
            for scope in said.held:
                self._allotments[Gauge(scope, Kind.PLACES)].told = None
            for gauge, _, units in said.back:
                if units < 0 and gauge in self._allotments:
                    self._allotments[gauge].free += units
            for asker in asking:
                if not asker.answered:
                    asker.undo()
                    asker.error = error


@dataclass(slots=True)
class _Asker:
    """Who waits for a round. at_hand: spent already, by demand; lacks: what is asked for."""

    demands: Sequence[Demand]
    mine: list[Allotment] = field(default_factory=list)
    at_hand: list[int] = field(default_factory=list)
    lacks: list[Demand] = field(default_factory=list)
    hold: _Hold | None = None
    error: BaseException | None = None
    rounds: int = 0

    @property
    def answered(self) -> bool:
        return self.hold is not None or self.error is not None

    def may_ask_again(self) -> bool:
        """Once, where what came to hand meanwhile and what is left for all would do together."""
        self.rounds += 1
        pairs = zip(self.mine, self.demands, strict=True)
        return self.rounds == 1 and all(a.level is None or a.free + a.level.remaining >= d.cost for a, d in pairs)

    def undo(self) -> None:
        for allotment, units in zip(self.mine, self.at_hand, strict=True):
            allotment.restore(units)

    def whole(self, lack: Demand) -> Demand:
        """As it was asked for."""
        return next(demand for demand in self.demands if demand.gauge == lack.gauge)


@dataclass(slots=True)
class _Hold:
    """`jobs.ports.limiting.Hold`. spent: units by allotment; empty once it has ended."""

    limiter: SharedLimiter
    spent: Sequence[tuple[Allotment, int]]
    standing: Standing

    def settle(self, tokens: int) -> None:
        self.limiter.end(self, tokens)

    def release(self) -> None:
        self.limiter.end(self, None)
