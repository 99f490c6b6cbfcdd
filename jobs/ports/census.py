"""What waits in the database, counted for those who watch it. No name of a tenant or a job is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from jobs.model import JobState, Priority, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog(Value):
    """Rows that are not committed, the tokens they will take (estimated), and the age of the oldest job of theirs."""

    rows: int = 0
    tokens: int = 0
    oldest_s: float = 0.0

    def plus(self, other: Backlog) -> Backlog:
        oldest_s = max(self.oldest_s, other.oldest_s)
        return Backlog(rows=self.rows + other.rows, tokens=self.tokens + other.tokens, oldest_s=oldest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag(Value):
    """Things that wait to be passed on, and the age of the oldest."""

    count: int = 0
    oldest_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Census(Value):
    """jobs: not at their end, by pool and state. backlog: of running jobs. outbox: messages that are not published, by
    pool. leases: by pool. reservations: open ones; reserved_pico: their sum. inbox: transactions that are not folded.
    waste_pico: the balance of repeated work by currency.
    """

    jobs: Mapping[tuple[str, JobState], int] = field(default_factory=dict)
    backlog: Mapping[tuple[str, Priority], Backlog] = field(default_factory=dict)
    outbox: Mapping[str, Lag] = field(default_factory=dict)
    leases: Mapping[str, int] = field(default_factory=dict)
    reservations: int = 0
    reserved_pico: int = 0
    inbox: Lag = Lag()
    waste_pico: Mapping[str, int] = field(default_factory=dict)


class CensusStore(Protocol):
    """Part of the store."""

    def census(self) -> Census:
        """A few short reads, each by an index; their cost follows the jobs and tasks that are open, not all there were.

        The tokens of a job's rows are estimated from what its rows took so far, else from its next task.
        """
        ...
