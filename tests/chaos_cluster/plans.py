"""From a seed to a job on a cluster and the faults it has to survive: a pure function."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

LARGE_FROM = 1000
"""Seeds from here on are large jobs, so that a number alone plays a run again."""
ROWS, LARGE_ROWS = 20_000, 200_000
FAULTS, LARGE_FAULTS = (2, 4), (4, 6)
"""How many, from and to."""
FIRST_AT, LAST_AT = 0.02, 0.85
TOGETHER = 0.3
"""Share of the faults that strike while the one before still lasts."""

# Kind → seconds that it lasts, from and to. Leases last 6 s, Kafka's session as long; a worker that says nothing for
# 12 s is replaced; an engine hangs after 4 s; S3 is given 2 s to answer.
MENU: Mapping[str, tuple[float, float]] = {
    "kill worker": (0, 0),
    "kill engine": (0, 0),
    "kill dispatcher": (0, 0),
    "kill scheduler": (0, 0),
    "kill fleet": (0, 0),
    "freeze worker": (9, 16),
    "freeze engine": (6, 9),
    "freeze dispatcher": (8, 12),
    "freeze scheduler": (8, 12),
    "broker killed": (0, 6),
    "broker frozen": (3, 9),
    "topic deleted": (0, 0),
    "topic wiped": (0, 0),
    "database killed": (0, 6),
    "database frozen": (3, 9),
    "s3 says 500": (2, 8),
    "s3 slow": (2, 8),
    "s3 half-written": (2, 8),
    "s3 silent after it stored": (4, 10),
}
REPEATS = frozenset({"kill worker", "kill engine", "freeze worker", "freeze engine"})
"""Kinds after which rows that were in someone's hands are generated again."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """at: share of the job's rows that are committed when it strikes. seconds: until it is mended; 0: at once, or by
    nobody. which: of several processes or topics, modulo their number.
    """

    kind: str
    at: float
    seconds: float
    which: int

    def __str__(self) -> str:
        lasts = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.kind}{lasts} at {self.at:.0%}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """faults: in the order in which they strike. ordered: the results are wanted in input order."""

    seed: int
    rows: int
    ordered: bool
    faults: tuple[Fault, ...]

    @property
    def large(self) -> bool:
        return self.seed >= LARGE_FROM

    def __str__(self) -> str:
        order = "input order" if self.ordered else "any order"
        return f"seed {self.seed}: {self.rows:,} rows, {order}; {'; '.join(map(str, self.faults))}"


def plan(seed: int, rows: int = 0) -> Plan:
    """rows: 0 for as many as seeds of this number have. Neighbouring seeds begin with different kinds of faults."""
    chance = random.Random(f"chaos-cluster-{seed}")
    deck = sorted(MENU)
    random.Random("deck").shuffle(deck)
    large = seed >= LARGE_FROM
    count = chance.randint(*(LARGE_FAULTS if large else FAULTS))
    kinds = [deck[seed % len(deck)], *chance.choices(deck, k=count - 1)]
    chance.shuffle(kinds)
    places = sorted(chance.uniform(FIRST_AT, LAST_AT) for _ in kinds)
    for number in range(1, count):
        if chance.random() < TOGETHER:
            places[number] = places[number - 1]
    faults = [
        Fault(kind=kind, at=round(at, 2), seconds=round(chance.uniform(*MENU[kind]), 1), which=chance.randrange(60))
        for kind, at in zip(kinds, places, strict=True)
    ]
    return Plan(
        seed=seed,
        rows=rows or (LARGE_ROWS if large else ROWS),
        ordered=chance.random() < 0.25,
        faults=tuple(faults),
    )
