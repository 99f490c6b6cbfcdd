"""What became of a plan: what struck, how soon rows were committed again, what was done twice, what is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos_cluster.checker import Ended
from tests.chaos_cluster.plans import REPEATS, Fault, Plan

MOST_REPEATED = 0.02
"""Share of the job's tokens that one kill may cost."""
AT_ONCE_S = 0.2
"""Of faults that strike so close together each is told the pause of both."""


@dataclass(kw_only=True)
class Struck:
    """A fault that has struck. at_s: since the submit. rows: committed then."""

    fault: Fault
    at_s: float
    rows: int

    def __str__(self) -> str:
        return f"  {self.at_s:6.1f} s, {self.rows:7,} rows: {self.fault}"


@dataclass(kw_only=True)
class Told:
    """What became of a plan. wrong: sentences, none if all is well."""

    plan: Plan
    total_s: float
    struck: list[Struck]
    commits_s: list[float]
    ended: Ended | None = None
    wrong: list[str] = field(default_factory=list)
    repeated_tokens: int = 0
    lost: int = 0

    @property
    def repeated(self) -> float:
        """As a share of the job's output tokens."""
        return self.repeated_tokens / self.ended.usage["output"] if self.ended is not None else 0.0

    @property
    def booked(self) -> float:
        """What the ledger has of it, of all token classes."""
        return self.ended.wasted_tokens / self.ended.tokens if self.ended is not None else 0.0

    def __str__(self) -> str:
        again = f"{self.repeated:.2%} of the output tokens generated again ({self.booked:.2%} in the book)"
        head = f"{self.plan}\n  {self.total_s:.1f} s in all, {again}, {self.lost} leases of frozen workers ended"
        pauses_s = longest_pauses([one.at_s for one in self.struck], self.commits_s)
        faults = [
            f"{one}; then no row was committed for {s:.1f} s" for one, s in zip(self.struck, pauses_s, strict=True)
        ]
        struck = {one.fault for one in self.struck}
        faults += [f"  never came to: {fault}" for fault in self.plan.faults if fault not in struck]
        return "\n".join([head, *faults, *(f"  WRONG: {wrong}" for wrong in self.wrong)])


def longest_pauses(strikes_s: Sequence[float], commits_s: Sequence[float]) -> list[float]:
    """For each strike the longest time without a commit that is its own: how long it takes until rows are committed
    again. What is on its way when a fault strikes is still committed; so a pause is that of the last strike before its
    middle.
    """
    found = []
    for at_s, next_s in zip(strikes_s, [*strikes_s, math.inf][1:], strict=True):
        seen = [at_s, *(s for s in commits_s if s > at_s)]
        own = [b - a for a, b in pairwise(seen) if (a + b) / 2 < max(next_s, at_s + AT_ONCE_S)]
        found.append(max(own, default=0.0))
    return found


def too_much(told: Told) -> list[str]:
    """On a machine with too much to do a lease may be lost without a kill: as much as one kill is always allowed."""
    kills = max(1, sum(one.fault.kind in REPEATS for one in told.struck))
    worst = max(told.repeated, told.booked)
    if worst <= MOST_REPEATED * kills:
        return []
    return [f"{worst:.2%} of the tokens were generated again, more than {MOST_REPEATED * kills:.0%} for {kills} kills"]
