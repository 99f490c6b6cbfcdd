"""Publishing: a topic that somebody deleted is made again, and what lay in it the reaper finds lost."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from jobs.errors import NotFound
from jobs.ports.queue import Outgoing, Queue
from jobs.ports.store import Place

log = structlog.get_logger()


def send(broker: Queue, messages: Sequence[Outgoing]) -> list[Place]:
    """Places in the order of the messages. Raises Unavailable while the broker is away."""
    try:
        return broker.publish(messages)
    except NotFound:
        topics = list(dict.fromkeys(message.topic for message in messages))
        log.warning("topics_made_again", topics=topics)
        broker.ensure_topics(topics)
        return broker.publish(messages)
