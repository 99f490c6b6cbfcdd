"""Ports of interactive work: a worker's door, the front that chooses among doors, and where charges are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from jobs.moves import Answer
from jobs.requests import LiveRequest, Load, Posting, Said

Hear = Callable[[Said], None]
"""Takes what is said of a request: pieces in order, then one `Ended`, and nothing after it. Cheap; from any thread."""


class Door(Protocol):
    """Where a worker takes requests. All methods from any thread; none waits."""

    @property
    def name(self) -> str:
        """Of the worker."""
        ...

    def enter(self, request: LiveRequest, hear: Hear) -> None:
        """Take a request. Whatever becomes of it, `hear` is told of its end exactly once, a refusal included."""
        ...

    def leave(self, request_id: str) -> None:
        """Whoever asked is gone: the request is aborted, and posted for what was generated. Idempotent."""
        ...

    def load(self) -> Load:
        """As last known."""
        ...


class Front(Protocol):
    """Takes a request to a worker that has room. All methods from any thread; none waits."""

    def ask(self, request: LiveRequest, hear: Hear) -> None:
        """As `Door.enter`, over all workers of the model: before its first piece a request that is refused or lost is
        tried on another one. REFUSED with `retry_after_s` once all refuse; LOST after a piece ends it.
        """
        ...

    def leave(self, request_id: str) -> None:
        """See `Door.leave`."""
        ...

    def serves(self, model: str) -> bool:
        """Whether a pool of the model takes requests at all, running or not."""
        ...


class PostingStore(Protocol):
    """Where charges of requests are written."""

    def post_requests(self, postings: Sequence[Posting]) -> list[Answer]:
        """Record and charge each, in one transaction, once for each id: MADE, or ALREADY for one that is there.

        Raises Unavailable.
        """
        ...
