"""What to do with a task after something went wrong: pure decisions, and the stated limits behind them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jobs.model import Task, Value


class Fate(StrEnum):
    """again: queue it as it is; apart: the rows that were inside become a suspect child of their own;
    halve: they become two; dead: its only row is given up.
    """

    AGAIN = "again"
    APART = "apart"
    HALVE = "halve"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonPolicy(Value):
    """deaths_alone: how often a single row may kill an engine, alone in it, before it is given up."""

    deaths_alone: int = 2


def after_death(task: Task, *, in_engine: int, policy: PoisonPolicy) -> Fate:
    """The engine died with `in_engine` of the task's rows inside. Only those rows are struck.

    A suspect task is alone in its engine, so a second death leads on: its rows are halved until one stands alone.
    """
    if in_engine == 0:
        return Fate.AGAIN
    if not task.suspect:
        return Fate.APART
    if in_engine > 1:
        return Fate.HALVE
    if task.rows > 1:
        return Fate.APART
    return Fate.DEAD if task.alone_deaths + 1 >= policy.deaths_alone else Fate.AGAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff(Value):
    """Waits between attempts of something that may come back: first, times `factor`, at most `max_s`."""

    first_s: float = 0.5
    factor: float = 2.0
    max_s: float = 30.0
    attempts: int = 8

    def wait_s(self, attempt: int) -> float | None:
        """Seconds before attempt `attempt` (counted from 1, after the first failure); None: give up."""
        if attempt >= self.attempts:
            return None
        return float(min(self.max_s, self.first_s * self.factor ** (attempt - 1)))
