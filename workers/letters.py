"""Dead letters: messages that went no further, with their bytes, where they lay, and why."""

from __future__ import annotations

import structlog

from jobs.errors import Refused, Unavailable
from jobs.ports.queue import Outgoing, Queue, Record
from workers.sending import send

log = structlog.get_logger()

ORIGIN, PLACE, CODE, REASON = "nightmill-origin", "nightmill-place", "nightmill-code", "nightmill-reason"
"""Headers of a dead letter: the topic it lay in, PARTITION:OFFSET there, the error's code, and its sentence."""

OURS = frozenset({ORIGIN, PLACE, CODE, REASON})
_LONGEST_REASON = 2000
_KEPT_BYTES = 64 << 10


def bury(broker: Queue, topic: str, record: Record, *, code: str, reason: str) -> None:
    """Publish it as a dead letter and wait until it is durable. Raises Unavailable.

    One that is too large with its headers, for a producer whose limit was higher than the broker's now, is cut.
    """
    headers = (
        *(header for header in record.headers if header[0] not in OURS),
        (ORIGIN, record.place.topic.encode()),
        (PLACE, f"{record.place.partition}:{record.place.offset}".encode()),
        (CODE, code.encode()),
        (REASON, reason[:_LONGEST_REASON].encode(errors="replace")),
    )
    letter = Outgoing(topic=topic, key=record.key, value=record.value, headers=headers)
    try:
        send(broker, [letter])
    except Unavailable:
        raise
    except Refused as error:
        if error.code != "message_too_large":
            raise
        log.error("dead_letter_cut", topic=record.place.topic, offset=record.place.offset, size=len(record.value))
        kept = letter.evolve(value=record.value[:_KEPT_BYTES], headers=headers[-len(OURS) :])
        send(broker, [kept])
