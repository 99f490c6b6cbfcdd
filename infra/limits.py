"""The rate limits of this process, with the thread that gives back what lies idle and keeps its claims up."""

from __future__ import annotations

import threading

import structlog

from jobs.allotment import AllotmentPolicy
from jobs.errors import Unavailable
from jobs.limiting import SharedLimiter
from jobs.ports.clock import Clock
from jobs.ports.limiting import RateStore

log = structlog.get_logger()

_AGAIN_S = 1.0


class RateLimits(SharedLimiter):
    """`jobs.ports.limiting.Limiter`, which keeps itself. Where nothing is limited its thread sleeps."""

    def __init__(self, store: RateStore, clock: Clock, holder: str, policy: AllotmentPolicy | None = None) -> None:
        super().__init__(store, clock, holder, policy)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="rate-limits", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give back all that is free, and end."""
        self._closing.set()
        self.changed.set()
        self._thread.join()
        try:
            self.leave()
        except Unavailable as error:
            log.warning("limits_not_given_back", reason=error.sentence)

    def _keep(self) -> None:
        wait_s: float | None = None
        while not self._closing.is_set():
            if self.changed.wait(wait_s):
                self._closing.wait(self.policy.gather_s)
            try:
                wait_s = self.beat()
            except Unavailable as error:
                log.warning("limits_not_kept", reason=error.sentence)
                wait_s = _AGAIN_S
