"""What a worker counts while it works, a task at a time; progress views and figures read it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.figures import Histogram
from jobs.model import Priority, Usage
from workers.work import Spent

COMMIT_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
WAIT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


@dataclass(slots=True, kw_only=True)
class Committed:
    """Of tasks whose commit was made: rows by outcome, tokens by class, and how long the commits took."""

    outcomes: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    seconds: Histogram = field(default_factory=lambda: Histogram(COMMIT_S))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, usage: Usage, seconds: float) -> None:
        """Commits are made by several threads."""
        with self._lock:
            self.outcomes.update(usage.outcomes)
            self.tokens.update(
                {"input": usage.input_tokens, "cached": usage.cached_tokens, "output": usage.output_tokens}
            )
            self.seconds.note(seconds)


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a worker has done since it started. waits: from a task's release to its first row's entry, by priority."""

    rows: int = 0
    spent: Spent = field(default_factory=Spent)
    engine_deaths: int = 0
    lost: int = 0
    waits: Mapping[Priority, Histogram] = field(default_factory=lambda: {p: Histogram(WAIT_S) for p in Priority})
