"""From a seed to a job and the deaths it has to survive."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.points import all_points
from tests.chaos.scene import Variant

CHAT = ("--id", "id", "--system", "You describe things.", "--prompt", "{{ name }} ({{ word }}, {{ price }})")
SCHEMA = json.dumps(
    {"type": "object", "properties": {"title": {"type": "string"}, "stars": {"type": "integer"}}, "required": ["title"]}
)
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            name="plain",
            rows=480,
            options=(*CHAT, "--max-tokens", "40", "--pause-on", "never"),
            engine={"rows_per_s": 2000, "error_on": "faulty", "length_on": "endless"},
            settings={"SEGMENT_ROWS": 200},
            words={33: "faulty", 34: "faulty", 120: "faulty", 131: "endless"},
        ),
        Variant(
            name="ordered",
            rows=320,
            options=("--prompt", "{{ group }} {{ name }} {{ price }}", "--order", "input", "--keep", "id,parts"),
            engine={"rows_per_s": 2000},
            settings={"SEGMENT_ROWS": 160},
        ),
        Variant(name="lines", rows=300, options=("--pause-on", "never"), lines=True, engine={"rows_per_s": 2000}),
        Variant(
            name="poison",
            rows=128,
            options=(*CHAT, "--pause-on", "never"),
            engine={"max_num_seqs": 2, "die_on": "poison"},
            task_rows=16,
            words={75: "poison"},
        ),
        Variant(
            name="varied",
            rows=200,
            options=(*CHAT[:4], "--prompt", "{{ name }} in {{ lang }}", "--vary", "lang=de,fr", "--sample", "64"),
            engine={"rows_per_s": 2000},
            settings={"SEGMENT_ROWS": 150},
        ),
    )
}
RANDOM_DEATHS = 3


@dataclass(frozen=True, kw_only=True)
class Death:
    """at: "POINT:N" for a trap, "" for a time. after: of the time that a quiet run takes, 0.0 to 1.0.

    engine: only the engine's process dies.
    """

    at: str = ""
    after: float = 0.0
    engine: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """deaths: one a process, in turn. by_key: goes on by the same `run` again instead of `resume`."""

    seed: int
    variant: Variant
    deaths: tuple[Death, ...]
    by_key: bool


def plan(seed: int, passes: Mapping[str, Mapping[str, int]], at: str = "") -> Plan:
    """passes: variant → point → how often a quiet run passes it. at: this point instead of the seed's own.

    Seven of ten die at a point, so that 200 seeds pass every point that there is; the others at random times.
    """
    chance = random.Random(seed)
    number, kind = divmod(seed, 10)
    by_key = chance.random() < 0.2
    if kind < 7:
        variant, first = _point_death(number * 7 + kind, passes, chance, at)
        second = (_later_death(passes[variant], chance),) if chance.random() < 0.3 else ()
        return Plan(seed=seed, variant=VARIANTS[variant], deaths=(first, *second), by_key=by_key)
    variant = chance.choice(sorted(VARIANTS))
    deaths = [Death(after=chance.random(), engine=kind == 8) for _ in range(chance.randint(1, RANDOM_DEATHS))]
    if kind == 9:
        deaths = [Death(after=chance.random()), *(_later_death(passes[variant], chance) for _ in range(2))]
    return Plan(seed=seed, variant=VARIANTS[variant], deaths=tuple(deaths), by_key=by_key)


def _point_death(
    number: int, passes: Mapping[str, Mapping[str, int]], chance: random.Random, at: str
) -> tuple[str, Death]:
    """The number-th card of a deck of all points, at one of its passes, in a variant that has it."""
    deck = [point for point in all_points() if any(point in counts for counts in passes.values())]
    random.Random("deck").shuffle(deck)
    point = at.rpartition(":")[0] or deck[number % len(deck)]
    variant = chance.choice(sorted(name for name, counts in passes.items() if point in counts) or sorted(passes))
    count = passes[variant].get(point, 1)
    pass_number = chance.choice([1, count, chance.randint(1, count)])
    return variant, Death(at=at or f"{point}:{pass_number}")


def _later_death(counts: Mapping[str, int], chance: random.Random) -> Death:
    """In a resumed run, which passes some points less often, and takes back what a dead one held."""
    point = chance.choice(sorted(counts.keys() | {"db.hand_back.before", "db.hand_back.after"}))
    return Death(at=f"{point}:{chance.randint(1, 3)}")


def facts(chosen: Plan) -> dict[str, Any]:
    """For the story of a failure."""
    return {"variant": chosen.variant.name, "deaths": chosen.deaths, "by_key": chosen.by_key}
