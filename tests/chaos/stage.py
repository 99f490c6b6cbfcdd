"""What the claims of this folder share: runs that can be held still, and the quiet runs to compare with."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import checker
from tests.chaos.checker import Ended
from tests.chaos.plans import VARIANTS
from tests.chaos.scene import Finished, Running, Scene, Variant

RUNS = int(os.environ.get("CHAOS_RUNS", "20"))
THOROUGH = RUNS >= 100
"""Else a family of claims is only sampled."""
PLAIN = VARIANTS["plain"]
CHECK_S = 60.0


def altered(variant: Variant, *, engine: Mapping[str, Any] | None = None, **settings: object) -> Variant:
    """The variant with some more engine arguments and settings; its results stay what they were."""
    return replace(variant, engine={**variant.engine, **(engine or {})}, settings={**variant.settings, **settings})


SLOW = altered(PLAIN, engine={"rows_per_s": 150, "max_num_seqs": 16}, SEGMENT_ROWS=64)
"""PLAIN with few rows in the engine and few tasks planned ahead: most of the job lies before it for some seconds."""
MIDDLE = "db.commit.after:3"


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """A run in which nothing died. passes: point → how often it was passed."""

    ended: Ended
    passes: Mapping[str, int]
    seconds: float


def quiet_run(folder: Path, variant: Variant) -> Quiet:
    """Run a variant to its end with nobody dying, and hold the checker itself against it."""
    scene = Scene(folder, variant)
    counts = folder / "passes.json"
    began = time.monotonic()
    first = scene.nightmill(*scene.run_line(), count=counts)
    seconds = time.monotonic() - began
    assert first.code in {0, 3, 4}, first.err
    if first.code == 4:
        assert scene.nightmill(*scene.next_line()).code == 0
    assert checker.faults(scene) == []
    return Quiet(ended=checker.read(scene), passes=json.loads(counts.read_text()), seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a claim gets: a folder of its own, and the quiet runs."""

    folder: Path
    quiet: Mapping[str, Quiet]

    def scene(self, variant: Variant, **options: Any) -> Scene:
        return Scene(self.folder, variant, **options)

    def agrees(self, scene: Scene, variant: str = "plain", **options: int) -> None:
        """The job has come to what a quiet run of this variant comes to."""
        assert checker.faults(scene, self.quiet[variant].ended, **options) == []


Claim = Callable[[Stage], None]


@dataclass(frozen=True)
class Claims:
    """Those of one module: name → claim. They run beside each other, since each mostly waits for processes."""

    made: dict[str, Claim] = field(default_factory=dict)

    def add(self, claim: Claim) -> Claim:
        self.made[claim.__name__] = claim
        return claim

    def family(self, name: str, members: Iterable[str], maker: Callable[[str], Claim], *, always: int = 1) -> None:
        """name: with {} for the member. always: how many are held in a short session too."""
        for member in list(members)[: None if THOROUGH else always]:
            self.made[name.format(member)] = maker(member)

    def params(self) -> list[Any]:
        return [pytest.param(claim, id=name) for name, claim in self.made.items()]


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + CHECK_S
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.02)


def committed(scene: Scene) -> int:
    """Rows on the manifest so far."""
    return sum(row["rows"] for row in scene.query("SELECT rows FROM parts"))


def held(scene: Scene, *at: str) -> Running:
    """A run that stands still at the point of its `hold`: some tasks are committed and most lie before it."""
    running = scene.start(*scene.run_line(), at=at or (f"{MIDDLE}=hold",))
    until(scene.hold.with_suffix(".held").exists, f"the hold of {at}")
    return running


def go(scene: Scene) -> None:
    """End the hold."""
    scene.hold.with_suffix(".go").touch()


def ends(running: Running, *codes: int) -> Finished:
    """Wait for its end, with one of these exit codes."""
    done = running.wait()
    assert done.code in codes, f"exit {done.code}: {done.err}"
    return done
