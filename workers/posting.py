"""Writes the charges of requests that ended, in groups, before their end is told.

A group is whatever ended while the one before it was written: alone when there is little to do, together when there is
much. What the database does not take in time is told as lost, and nobody pays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from jobs.errors import NightmillError, Unavailable
from jobs.moves import Answer
from jobs.ports.clock import Clock
from jobs.ports.live import Hear
from jobs.requests import End, Ended, Posting, Said
from jobs.retry import Backoff
from workers.about import named_thread

log = structlog.get_logger()

MOST = 256
"""Postings of one transaction."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A posting, and what is told to whom once it is written."""

    posting: Posting
    ended: Ended
    hear: Hear


@dataclass(slots=True, kw_only=True)
class Poster:
    """`put` from any thread; a thread of its own writes, from the first one on until `close`.

    again: how often, and after which pauses, a database that is away is asked.
    """

    post: Callable[[Sequence[Posting]], list[Answer]]
    clock: Clock
    again: Backoff = Backoff(attempts=6, first_s=0.1, max_s=1.0)
    posted: int = 0
    unposted: int = 0
    _waiting: list[Parcel] = field(default_factory=list)
    _busy: bool = False
    _closed: bool = False
    _turn: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    def put(self, parcel: Parcel) -> None:
        """Its end is told soon, posted or lost."""
        with self._turn:
            self._waiting.append(parcel)
            if self._thread is None:
                self._thread = named_thread("poster", self._run)
                self._thread.start()
            self._turn.notify()

    @property
    def idle(self) -> bool:
        """All was told."""
        return not self._waiting and not self._busy

    def close(self) -> None:
        """Once all that was put is told."""
        with self._turn:
            self._closed = True
            self._turn.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (group := self._next()) is not None:
            self._write(group)
            self._busy = False

    def _next(self) -> list[Parcel] | None:
        with self._turn:
            while not self._waiting and not self._closed:
                self._turn.wait()
            group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            self._busy = bool(group)
            return group or None

    def _write(self, group: Sequence[Parcel]) -> None:
        """A group of which one is refused is written one by one, so that the others do not suffer for it."""
        try:
            self._post([parcel.posting for parcel in group])
        except Unavailable as error:
            self._lose(group, error.sentence)
        except Exception as error:  # the thread's edge: whoever waits must be told, whatever it was
            if len(group) > 1:
                for parcel in group:
                    self._write([parcel])
                return
            log.exception("posting_failed", request=group[0].posting.id)
            self._lose(group, error.sentence if isinstance(error, NightmillError) else repr(error))
        else:
            self.posted += len(group)
            for parcel in group:
                tell(parcel.hear, parcel.ended)

    def _post(self, postings: Sequence[Posting]) -> None:
        attempt = 0
        while True:
            try:
                self.post(postings)
            except Unavailable as error:
                attempt += 1
                wait_s = self.again.wait_s(attempt)
                if wait_s is None:
                    raise
                log.warning("posting_again", requests=len(postings), reason=error.sentence, in_s=wait_s)
                self.clock.sleep(wait_s)
            else:
                return

    def _lose(self, group: Sequence[Parcel], reason: str) -> None:
        self.unposted += len(group)
        log.error("requests_not_posted", requests=[parcel.posting.id for parcel in group], reason=reason)
        for parcel in group:
            tell(
                parcel.hear,
                Ended(end=End.LOST, result=parcel.ended.result, reason=f"its charge was not written: {reason}"),
            )


def tell(hear: Hear, said: Said) -> None:
    """A listener that fails has itself to blame: the worker and its other requests go on."""
    try:
        hear(said)
    except Exception:  # the edge to whoever asked
        log.exception("listener_failed")
