"""kill -9 at every durable step, and at random: no row missing, none twice, and the ledger as if nothing had happened.

CHAOS_RUNS: how many seeds (20). CHAOS_SEED: only this one. CHAOS_AT=POINT:N: with CHAOS_SEED, this point instead of its
own. CHAOS_KEEP=FOLDER: where the runs lie afterwards. A failure prints the command that plays it again.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.plans import Death, Plan, facts, plan
from tests.chaos.points import all_points
from tests.chaos.scene import TERMINAL, Scene
from tests.chaos.stage import RUNS, Quiet

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SEEDS = [int(os.environ["CHAOS_SEED"])] if "CHAOS_SEED" in os.environ else range(RUNS)
AT = os.environ.get("CHAOS_AT", "")
RARE = "db.withdraw db.sweep db.note_speed db.set_state queue.leave queue.stay other.put void.put".split()
"""Steps that a quiet run need not make; claims beside this module do."""


def play(chosen: Plan, scene: Scene, seconds: float) -> None:
    """One process a death, then whatever it takes to the end."""
    for number, death in enumerate(chosen.deaths):
        _die(scene, death, seconds, first=number == 0, by_key=chosen.by_key)
    scene.finish(by_key=chosen.by_key)


def _die(scene: Scene, death: Death, seconds: float, *, first: bool, by_key: bool) -> None:
    if (scene.job() or {}).get("state") in TERMINAL:
        return
    command = scene.run_line() if first else scene.next_line(by_key=by_key)
    running = scene.start(*command, at=[death.at] if death.at else [])
    if not death.at:
        time.sleep(death.after * seconds)
        if death.engine:
            running.signal_engine(signal.SIGKILL)
        else:
            running.kill()
    done = running.wait()
    scene.story[-1] += f" → {done.code}"
    expected = {0, 3, 4, 7} if death.engine else {0, 3, 4}  # 7: the engine died before it was ready
    assert done.killed or done.code in expected, f"exit {done.code}: {done.err}"


def again(chosen: Plan) -> str:
    """The command that plays this run again."""
    at = f" CHAOS_AT={chosen.deaths[0].at}" if chosen.deaths[0].at else ""
    return f"CHAOS_SEED={chosen.seed}{at} CHAOS_KEEP=/tmp/chaos-{chosen.seed} pytest tests/chaos/test_chaos.py"


def one(seed: int, quiet: dict[str, Quiet], folder: Path) -> tuple[list[str], str]:
    """What is wrong in the end, and the story."""
    chosen = plan(seed, {name: run.passes for name, run in quiet.items()}, AT)
    scene = Scene(folder, chosen.variant)
    mine = quiet[chosen.variant.name]
    try:
        play(chosen, scene, mine.seconds)
        found = checker.faults(scene, mine.ended)
    except AssertionError as error:
        found = [str(error)]
    return found, f"{facts(chosen)}\n{'; '.join(scene.story)}\nagain: {again(chosen)}"


@pytest.fixture(scope="session")
def runs(request, pool, quiet, tmp_path_factory):
    """seed → its run, of all seeds that are asked for in this session."""
    root = Path(os.environ.get("CHAOS_KEEP") or tmp_path_factory.mktemp("chaos"))
    wanted = sorted({item.callspec.params["seed"] for item in request.session.items if _is_seeded(item)})
    return {seed: pool.submit(one, seed, quiet, root / f"seed-{seed}") for seed in wanted}


def _is_seeded(item: pytest.Item) -> bool:
    return getattr(item, "originalname", "") == "test_after_any_death_a_resumed_job_is_as_if_nothing_had_happened"


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_death_a_resumed_job_is_as_if_nothing_had_happened(seed, runs):
    found, story = runs[seed].result()
    print(story)
    assert not found, "\n".join(found)


def test_every_point_of_the_table_is_passed(quiet):
    passed = {point for run in quiet.values() for point in run.passes}
    assert {point.rpartition(".")[0] for point in set(all_points()) - passed} <= set(RARE)
