"""Quiet runs to compare with, and seeded runs two at a time: a crash run mostly waits."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.checker import Ended
from tests.chaos.plans import VARIANTS
from tests.chaos.scene import Scene, Variant

PARALLEL = int(os.environ.get("CHAOS_PARALLEL", "3"))


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


@pytest.fixture(scope="session")
def pool():
    with ThreadPoolExecutor(PARALLEL) as threads:
        yield threads


@pytest.fixture(scope="session")
def quiet(pool, tmp_path_factory):
    """Variant name → its quiet run."""
    root = tmp_path_factory.mktemp("quiet")
    runs = {name: pool.submit(quiet_run, root / name, variant) for name, variant in VARIANTS.items()}
    return {name: run.result() for name, run in runs.items()}
