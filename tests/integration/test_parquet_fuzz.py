"""Broken Parquet through the intake: whatever it does, it does it to the process that looks first, and there it ends.

FUZZ_CASES=25000: that many instead of a short slice; FUZZ_FIRST: the seed to begin with.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infra.data.look import Looker
from infra.objects.local import LocalObjects
from jobs.errors import BadInput
from tests.support.parquet_fuzz import case

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
CORPUS = sorted((ROOT / "tests/corpus/parquet").glob("*.parquet"))
CASES = int(os.environ.get("FUZZ_CASES", "1500"))
FIRST = int(os.environ.get("FUZZ_FIRST", "0"))
ENV = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}


@dataclass
class Told:
    """What became of the cases. crashes: (case, at which stage)."""

    found: Counter = field(default_factory=Counter)
    crashes: list = field(default_factory=list)
    slow: list = field(default_factory=list)
    grown_mib: int = 0


def fuzzed(first, last):
    told = Told()
    while first < last:
        command = [sys.executable, "-m", "tests.support.parquet_fuzz", str(first), str(last)]
        ended = subprocess.run(command, cwd=ROOT, env=ENV, capture_output=True, text=True, check=False)
        lines = ended.stdout.splitlines()
        told.found.update(line.split(" ", 2)[2] for line in lines if " done " in line)
        if ended.returncode == 0:
            summary = json.loads(lines[-1])
            told.slow += summary["slow"]
            told.grown_mib = max(told.grown_mib, summary["grown_mib"])
            break
        number, stage = lines[-1].split(" ")[:2]
        told.crashes.append((int(number), stage))
        first = int(number) + 1
    return told


@pytest.fixture(scope="module")
def told():
    return fuzzed(FIRST, FIRST + CASES)


def test_every_case_ends_in_a_refusal_or_in_rows_and_nothing_that_is_taken_ends_its_reader(told):
    assert {stage for _, stage in told.crashes} <= {"look"}
    assert set(told.found) <= {"bad_input", "read", "faults", "memory"}
    assert told.found.total() + len(told.crashes) == CASES
    assert min(told.found[outcome] for outcome in ("bad_input", "read", "faults")) > 0


def test_none_hangs_and_memory_stays_flat(told):
    assert (told.slow, told.grown_mib < 64) == ([], True)


def test_what_ends_its_process_is_a_refusal_to_whoever_asked(told, tmp_path):
    numbers = [number for number, _ in told.crashes][:3]
    looker, objects = Looker(objects=LocalObjects(), scratch=tmp_path), LocalObjects()
    for number in numbers:
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(case(number))
        with pytest.raises(BadInput, match="it brings its reader down"):
            looker.look(str(path), [objects.facts(str(path))], None)
    assert numbers or CASES < 1000


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_of_interest_once_is_refused(path, tmp_path):
    objects = LocalObjects()
    with pytest.raises(BadInput):
        Looker(objects=objects, scratch=tmp_path).look(str(path), [objects.facts(str(path))], None)
