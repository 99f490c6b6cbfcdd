"""Where requests come in, from any thread, and wait for the worker's loop: who enters, who leaves, what the load is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.admission import AdmitPolicy, InHand, Pace, decide, expected_tokens, wait_s
from jobs.model import Value
from jobs.ports.clock import Clock
from jobs.ports.live import Hear
from jobs.requests import End, Ended, LiveRequest, Load
from workers.asks import Ask, Stop, packs_of, urgent
from workers.seating import Seating

AGAIN_S = 5.0
"""After so long it is worth to ask a worker again that is closed for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePolicy(Value):
    """max_wait_s: as in `AdmitPolicy`; a request that was let in and has not begun by then is refused all the same.

    kept_free: share of the seats that rows of tasks leave free. quiet_s: after so long without a request they are not
    kept any more. pack_tokens: a request of many inputs enters by so many tokens at a time, and a quarter of the seats.
    """

    max_wait_s: float = 2.0
    kept_free: float = 0.25
    quiet_s: float = 300.0
    pack_tokens: int = 4096


@dataclass(slots=True, kw_only=True)
class Doorstep:
    """All methods from any thread. asks: in hand, by id; requests: those of them that are no probes. closed: why no
    request enters, empty if they do. asked_s: when the last one entered that was no probe, monotonic.
    """

    seating: Seating
    clock: Clock
    admit: AdmitPolicy
    policy: LivePolicy
    asks: dict[str, Ask] = field(default_factory=dict)
    requests: int = 0
    closed: str = ""
    refused: int = 0
    asked_s: float | None = None
    _pace: Pace = field(default_factory=Pace)
    _expected: int = 0
    _fresh: list[Ask] = field(default_factory=list)
    _leaving: list[tuple[Ask, Stop]] = field(default_factory=list)
    _listeners: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, request: LiveRequest, hear: Hear) -> Ended | None:
        """Decide; what it is told if it is refused."""
        with self._lock:
            refusal = self._refusal(request)
            if refusal is not None:
                self.refused += not request.probe
                return refusal
            most_seats = max(1, self.admit.seats // 4)
            ask = Ask(
                request=request,
                hear=hear,
                entered_s=self.clock.monotonic(),
                expected=expected_tokens(request, self._pace),
                profile=urgent(request.profile),
                packs=packs_of(request, most_tokens=self.policy.pack_tokens, most_seats=most_seats)[::-1],
            )
            self.asks[request.id] = ask
            self._expected += ask.expected
            if not request.probe:
                self.requests, self.asked_s = self.requests + 1, ask.entered_s
            self._fresh.append(ask)
        self.changed()
        return None

    def leaves(self, request_id: str, why: Stop) -> bool:
        """Whether such a request is in hand; the loop will stop it."""
        with self._lock:
            ask = self.asks.get(request_id)
            if ask is not None:
                self._leaving.append((ask, why))
        return ask is not None

    def collect(self) -> tuple[list[Ask], list[tuple[Ask, Stop]]]:
        """(those that are to enter, those that are to leave) since the last call."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            leaving, self._leaving = self._leaving, []
        return fresh, leaving

    @property
    def waiting(self) -> int:
        """Requests that have no seat yet."""
        return len(self.seating.line) + len(self._fresh)

    def load(self) -> Load:
        """See `jobs.ports.live.Door`."""
        with self._lock:
            hand, waiting = self._in_hand(), self.waiting
        used = min(hand.used, self.admit.seats)
        wait = wait_s(hand, self.admit)
        return Load(seats=self.admit.seats, used=used, waiting=waiting, wait_s=wait, open=not self.closed)

    def retry_s(self) -> float:
        """After which time one that is refused now may come again."""
        with self._lock:
            retry_s = AGAIN_S if self.closed else max(1.0, wait_s(self._in_hand(), self.admit))
        return round(retry_s, 3)

    def close(self, reason: str) -> None:
        """Take no further request."""
        with self._lock:
            self.closed = self.closed or reason
        self.changed()

    def open_again(self, reason: str) -> None:
        """If that was why it was closed."""
        with self._lock:
            if self.closed == reason:
                self.closed = ""
        self.changed()

    def forget(self, ask: Ask) -> None:
        """It is in hand no more."""
        with self._lock:
            if self.asks.pop(ask.request.id, None) is not None:
                self._expected -= ask.expected
                self.requests -= not ask.request.probe
            if ask in self.seating.line:
                self.seating.line.remove(ask)
        self.changed()

    def learn(self, *, service_s: float, estimated: int, came: int) -> None:
        """From a request that was served; see `Pace`."""
        self._pace = self._pace.after(service_s=service_s, estimated=estimated, came=came)

    def listen(self, changed: Callable[[], None]) -> None:
        """changed: called whenever the load may have changed. Cheap."""
        self._listeners.append(changed)

    def changed(self) -> None:
        """Tell those who listen."""
        for listener in self._listeners:
            listener()

    def _refusal(self, request: LiveRequest) -> Ended | None:
        if self.closed:
            return Ended(end=End.REFUSED, retry_after_s=AGAIN_S, reason=self.closed)
        if request.id in self.asks:
            return Ended(end=End.REFUSED, reason="a request of this id is in hand")
        verdict = decide(self._in_hand(), self.admit, request)
        if verdict.enters:
            return None
        reason = f"it would wait {verdict.wait_s:.1f} s"
        return Ended(end=End.REFUSED, retry_after_s=round(verdict.retry_after_s, 3), reason=reason)

    def _in_hand(self) -> InHand:
        """Under the lock. What is about to go inside counts."""
        fresh = sum([ask.packs[-1].seats for ask in self._fresh])
        behind = self.seating.behind + sum([pack.seats for ask in self._fresh for pack in ask.packs[:-1]])
        return InHand(used=self.seating.used + fresh, tokens=self._expected, behind=behind, pace=self._pace)
