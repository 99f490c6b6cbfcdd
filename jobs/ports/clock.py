"""Time, ids and randomness are arguments: one port for the three."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall clock (seconds since the epoch), monotonic clock (seconds), and sleeping."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """New names. Ids sort by time; tokens and tickets are random and unguessable."""

    def job_id(self) -> str: ...

    def new(self, prefix: str) -> str:
        """An id that begins so (`file-`, `batch_`, `key_`) and sorts by time, as a job's does."""
        ...

    def token(self) -> str: ...
