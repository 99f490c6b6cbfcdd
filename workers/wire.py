"""The message in a topic, as bytes: `{"v":1,"task":…,"epoch":7,"ticket":…,"pool":…}`, keyed by the task's id."""

from __future__ import annotations

import json

from jobs.model import Message, Priority
from jobs.ports.queue import Outgoing

VERSION = 1


class Unreadable(ValueError):
    """The bytes are no message of ours; they go to the dead-letter topic as they are."""


def topic(prefix: str, pool: str, priority: Priority) -> str:
    """`<prefix>.<pool>.<priority>`."""
    return f"{prefix}.{pool}.{priority}"


def encode(prefix: str, message: Message) -> Outgoing:
    """Key: the task. A key by job would put a lone big job on one partition and so on one dispatcher."""
    body = {"v": VERSION, "task": message.task, "epoch": message.epoch, "ticket": message.ticket, "pool": message.pool}
    return Outgoing(
        topic=topic(prefix, message.pool, message.priority),
        key=message.task.encode(),
        value=json.dumps(body, separators=(",", ":")).encode(),
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
