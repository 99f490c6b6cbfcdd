"""Runs the deliveries of webhooks: what is due is sent from a few threads, of each tenant a few at a time."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from jobs.delivering import Deliverer
from jobs.errors import NightmillError
from jobs.model import Value
from jobs.ports.clock import Clock
from jobs.webhooks import Delivery

log = structlog.get_logger()

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy(Value):
    """at_once: calls under way, at most; each: of one tenant. hold_s: after so long a call that nobody settled is made
    again; longer than any call takes. keep_s: how long a settled delivery is remembered.
    """

    at_once: int = 16
    each: int = 4
    hold_s: float = 120.0
    keep_s: float = 30 * 86_400.0


@dataclass(slots=True, kw_only=True)
class Delivering:
    """`step` again and again; several processes may. threads: as many as the policy lets be under way."""

    deliverer: Deliverer
    threads: ThreadPoolExecutor
    clock: Clock
    policy: DeliveryPolicy = DeliveryPolicy()
    counts: Counter[str] = field(default_factory=Counter)
    _busy: dict[str, tuple[str, Future[Delivery]]] = field(default_factory=dict)
    _forgot_s: float | None = None

    def step(self) -> int:
        """Begin what is due and has room; how many. Raises DatabaseUnavailable."""
        self._collect()
        self._forget()
        policy, of = self.policy, Counter(tenant for tenant, _ in self._busy.values())
        room = policy.at_once - len(self._busy)
        if room <= 0:
            return 0
        crowded = [tenant for tenant, number in of.items() if number >= policy.each]
        taken = self.deliverer.store.take_deliveries(limit=room, each=policy.each, hold_s=policy.hold_s, skip=crowded)
        for delivery in taken:
            self._busy[delivery.id] = (delivery.tenant, self.threads.submit(self.deliverer.deliver, delivery))
        return len(taken)

    def close(self) -> None:
        """Wait for what is under way; what was not begun is due again after a while."""
        self.threads.shutdown(wait=True, cancel_futures=True)

    def _collect(self) -> None:
        for name, (_, future) in list(self._busy.items()):
            if not future.done():
                continue
            del self._busy[name]
            if (error := future.exception()) is None:
                self._tell(future.result())
                continue
            reason = error.sentence if isinstance(error, NightmillError) else repr(error)
            log.error("delivery_held_up", delivery=name, reason=reason, exc_info=error, silent=True)

    def _tell(self, delivery: Delivery) -> None:
        outcome = delivery.outcome or "again"
        self.counts[outcome] += 1
        facts = {"delivery": delivery.id, "webhook": delivery.webhook, "tenant": delivery.tenant}
        log.info(
            "webhook_called", subject=delivery.subject, outcome=outcome, attempt=delivery.attempts,
            status=delivery.status, reason=delivery.reason, **facts,
        )  # fmt: skip

    def _forget(self) -> None:
        now_s = self.clock.monotonic()
        if self._forgot_s is None or now_s - self._forgot_s >= _HOUR_S:
            self._forgot_s = now_s
            self.deliverer.store.forget_deliveries(self.policy.keep_s)
