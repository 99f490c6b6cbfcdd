"""Whether a worker is to be trusted: proved by a token, not by its process being there. Pure.

A circuit is closed while a worker proves its health, open after some failures in a row, and half open while an open one
is probed again. A token of a request counts like a probe's, so that a full engine is not taken for a dead one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jobs.model import Value


class Circuit(StrEnum):
    """Requests go to a worker whose circuit is closed, and to no other."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePolicy(Value):
    """every_s: between two proofs. limit_s: within which a probe has its token. failures: in a row, that open it."""

    every_s: float = 5.0
    limit_s: float = 1.0
    failures: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(Value):
    """What is known of a worker. Times are monotonic seconds.

    failures: in a row. looked_s: when it last proved its health, failed to, or was first seen. probed_s: when the
    probe that is under way began, None for none.
    """

    looked_s: float
    failures: int = 0
    probed_s: float | None = None

    def circuit(self, policy: ProbePolicy) -> Circuit:
        """How it stands."""
        if self.failures < policy.failures:
            return Circuit.CLOSED
        return Circuit.OPEN if self.probed_s is None else Circuit.HALF_OPEN


def is_due(health: Health, policy: ProbePolicy, now: float) -> bool:
    """Whether it should be probed now."""
    return health.probed_s is None and now - health.looked_s >= policy.every_s


def begun(health: Health, now: float) -> Health:
    """A probe was sent."""
    return health.evolve(probed_s=now)


def is_proved(health: Health, heard_s: float) -> bool:
    """Whether a token that came at that time is news: later than the last proof, and not before the probe's sending."""
    return heard_s > health.looked_s and heard_s >= (health.probed_s or 0.0)


def proved(health: Health, now: float) -> Health:
    """A token came, of the probe or of a request: it closes the circuit, and no probe is under way any more."""
    return health.evolve(looked_s=max(now, health.looked_s), failures=0, probed_s=None)


def failed(health: Health, now: float) -> Health:
    """The probe found no token: refused, lost, or not in time."""
    return health.evolve(looked_s=now, failures=health.failures + 1, probed_s=None)


def is_late(health: Health, policy: ProbePolicy, now: float) -> bool:
    """Whether the probe that is under way had its time."""
    return health.probed_s is not None and now - health.probed_s >= policy.limit_s
