"""The message in a topic, as bytes: `{"v":1,"task":…,"epoch":7,"ticket":…,"pool":…}`, keyed by the task's id.

In its headers lies the W3C trace context (`traceparent`), so that what a worker does is found beside what released it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.model import Message, Priority, Value
from jobs.ports.queue import Outgoing
from jobs.topics import topic

VERSION = 1
TRACEPARENT = "traceparent"
TRACE_CHARS, SPAN_CHARS = 32, 16
RELEASED = "nightmill-released"
"""Header: when the task was released, in seconds since the epoch by the database's clock."""

_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.DOTALL
)
_SAMPLED = 0x01
_SECONDS = re.compile(rb"[0-9]{1,11}(\.[0-9]{1,9})?")


class Unreadable(ValueError):
    """The bytes are no message of ours; they go to the dead-letter topic as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Value):
    """W3C Trace Context, level 1: trace_id has 32 hexadecimal characters, span_id (of the parent) 16."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def header(self) -> tuple[str, bytes]:
        return TRACEPARENT, f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}".encode()


def trace_of(headers: Sequence[tuple[str, bytes]]) -> Trace | None:
    """Where the message came from; None without a `traceparent`, with more than one, or one that is not to be read.

    A later version than 00 is read as far as it is known, as the standard wants it.
    """
    found = [value for name, value in headers if name.lower() == TRACEPARENT]
    match = _TRACEPARENT.fullmatch(found[0]) if len(found) == 1 else None
    if match is None or (found[0].startswith(b"00") and len(found[0]) > match.end(3)):
        return None
    return Trace(trace_id=match[1].decode(), span_id=match[2].decode(), sampled=bool(int(match[3], 16) & _SAMPLED))


def released_of(headers: Sequence[tuple[str, bytes]]) -> float | None:
    """When the message's task was released; None where that is not told, or not to be read."""
    found = [value for name, value in headers if name == RELEASED]
    return float(found[0]) if len(found) == 1 and _SECONDS.fullmatch(found[0]) else None


def encode(prefix: str, message: Message, trace: Trace | None = None, released_at: float | None = None) -> Outgoing:
    """Key: the task. A key by job would put a lone big job on one partition and so on one dispatcher."""
    body = {"v": VERSION, "task": message.task, "epoch": message.epoch, "ticket": message.ticket, "pool": message.pool}
    headers = [] if trace is None else [trace.header]
    if released_at is not None:
        headers.append((RELEASED, f"{released_at:.3f}".encode()))
    return Outgoing(
        topic=topic(prefix, message.pool, message.priority),
        key=message.task.encode(),
        value=json.dumps(body, separators=(",", ":")).encode(),
        headers=tuple(headers),
    )


def decode(value: bytes, priority: Priority) -> Message:
    """Raises Unreadable naming the fault."""
    try:
        body = json.loads(value)
        version, fields = body["v"], {k: body[k] for k in ("task", "epoch", "ticket", "pool")}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"not a task message: {error!r}") from error
    if version != VERSION:
        raise Unreadable(f"version {version!r} instead of {VERSION}")
    if wrong := [f"{name} {value!r}" for name, value in fields.items() if not _plausible(name, value)]:
        raise Unreadable(", ".join(wrong))
    return Message(priority=priority, **fields)


def _plausible(name: str, value: object) -> bool:
    """Whether a database can be asked for it: lone surrogates, NUL and integers past 64 bits make its driver raise."""
    if name == "epoch":
        return type(value) is int and 0 <= value < 2**63
    return isinstance(value, str) and value.isascii() and value.isprintable()
