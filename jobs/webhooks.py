"""Webhooks: who is told when a job or batch ends, what the message says, how it is signed and when it is tried again.

Signed as Standard Webhooks (https://www.standardwebhooks.com) says, with events as OpenAI's, so that the libraries of
both read them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jobs.errors import BadInput
from jobs.model import Value

EVENTS = tuple(f"{kind}.{end}" for kind in ("job", "batch") for end in ("completed", "failed", "cancelled", "expired"))
"""What can be told of."""
SECRET_PREFIX = "whsec_"  # noqa: S105 - of all secrets, as the standard says
SECRET_BYTES = 32
_LEAST_BYTES, _MOST_BYTES = 24, 64
WAITS_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Before each further attempt, as Standard Webhooks suggests: ten attempts in three days."""
_JITTER = 0.2
GONE = 410
"""The status by which an endpoint says that it wants nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Value):
    """An endpoint. sealed: its secret, to be opened by this installation alone.

    standing: it is told of every job and batch of its tenant; another one only of those that name it. events: which
    ones, all where it is empty. ended_at: it is told of nothing since then.
    """

    id: str
    tenant: str
    url: str
    sealed: str
    name: str = ""
    events: tuple[str, ...] = ()
    standing: bool = True
    created_at: float = 0.0
    ended_at: float | None = None

    def wants(self, event: str) -> bool:
        """Whether it is told of such an event."""
        return not self.events or event in self.events


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(Value):
    """A message to one endpoint of one end. id: the `webhook-id`, the same at every attempt.

    attempts: begun so far. next_at: of the next one, None once there is none. outcome: "" while it is open, else
    `delivered` or `failed`. status: of the last answer. reason: why the last attempt failed.
    """

    id: str
    webhook: str
    tenant: str
    subject: str
    event: str
    body: str
    created_at: float
    attempts: int = 0
    next_at: float | None = None
    outcome: str = ""
    status: int | None = None
    reason: str = ""


def delivery_id(webhook: str, subject: str) -> str:
    """Follows from whom it is for and what it tells of: there is one such message, whoever writes it."""
    return f"msg_{_digest(webhook, subject)}"


def event_body(event: str, subject: str, at: float) -> str:
    """The message. It names what ended; who wants to know more asks the API for it, with its key."""
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body: dict[str, Any] = {
        "id": f"evt_{_digest(event, subject)}",
        "object": "event",
        "type": event,
        "created_at": int(at),
        "timestamp": when,
        "data": {"id": subject},
    }
    return json.dumps(body, separators=(",", ":"))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


# ---- signing ------------------------------------------------------------------------------------


def secret_of(random: bytes) -> str:
    """A secret as it is shown."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def key_of(secret: str) -> bytes:
    """The bytes that sign. Raises BadInput for what is no secret: `whsec_` and the Base64 of 24 to 64 bytes."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        reason = f"it is not {SECRET_PREFIX} and the Base64 of {_LEAST_BYTES} to {_MOST_BYTES} bytes"
        raise BadInput(source="webhook.secret", reason=reason)
    return key


def headers_of(secret: str, delivery: Delivery, now: float) -> Mapping[str, str]:
    """Of one attempt. now: the sender's clock, which a receiver compares with its own."""
    timestamp = str(int(now))
    signed = f"{delivery.id}.{timestamp}.{delivery.body}".encode()
    signature = base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()
    return {
        "content-type": "application/json",
        "user-agent": "nightmill-webhooks/1",
        "webhook-id": delivery.id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
    }


# ---- what an attempt came to --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Value):
    """status: of the answer, None where there was none. reason: why it failed, "" where it did not."""

    status: int | None = None
    reason: str = ""

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """The endpoint wants nothing any more."""
        return self.status == GONE


def after(delivery: Delivery, attempt: Attempt, *, now: float, chance: float) -> Delivery:
    """How a delivery stands after an attempt. chance: random, 0 ≤ x < 1, so that many do not come back at once."""
    told = delivery.evolve(status=attempt.status, reason=attempt.reason)
    if attempt.taken:
        return told.evolve(outcome="delivered", next_at=None)
    if attempt.gone or delivery.attempts > len(WAITS_S):
        return told.evolve(outcome="failed", next_at=None)
    wait_s = WAITS_S[max(0, delivery.attempts - 1)]
    return told.evolve(next_at=now + wait_s * (1 + _JITTER * chance))
