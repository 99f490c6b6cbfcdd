"""The engine hangs, dies, stops, or is killed by a row."""

from __future__ import annotations

import signal
from collections.abc import Mapping

import pytest

from tests.chaos import checker
from tests.chaos.plans import CHAT
from tests.chaos.scene import Variant
from tests.chaos.stage import PLAIN, SLOW, Claims, Stage, altered, ends, go, held

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
claims = Claims()


@claims.add
def an_engine_that_hangs_is_ended_and_its_rows_are_done_again(stage: Stage) -> None:
    hangs = {"hang_after_rows": 200, "max_num_seqs": 16}
    scene = stage.scene(altered(PLAIN, engine=hangs, HANG_TIMEOUT_S=1))
    assert scene.nightmill(*scene.run_line()).code == 3
    stage.agrees(scene)


@claims.add
def a_row_that_hangs_the_engine_is_one_error_row(stage: Stage) -> None:
    _only_these_die(stage, {40: "deadly"}, fault="hang_on", HANG_TIMEOUT_S=1)


@claims.add
def rows_that_kill_the_engine_are_error_rows_and_their_neighbours_are_ok(stage: Stage) -> None:
    _only_these_die(stage, {5: "deadly", 40: "deadly", 41: "deadly", 100: "deadly"}, fault="die_on")


def _only_these_die(stage: Stage, words: Mapping[int, str], *, fault: str, **settings: object) -> None:
    variant = Variant(
        name="deadly",
        rows=112,
        options=(*CHAT, "--pause-on", "never"),
        engine={"max_num_seqs": 2, fault: "deadly"},
        settings=settings,
        task_rows=16,
        words=words,
    )
    scene = stage.scene(variant)
    assert scene.nightmill(*scene.run_line()).code == 3
    assert checker.faults(scene) == []
    rows = checker.read_folder(scene.folder_of_job()).select(["row", "outcome", "error_code"]).to_pylist()
    assert {row["row"]: row["error_code"] for row in rows if row["outcome"] != "ok"} == dict.fromkeys(
        words, "engine_died"
    )


@claims.add
def an_engine_killed_at_its_start_leaves_a_job_that_resumes(stage: Stage) -> None:
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["engine.launch.after:1=engine"]).code == 7
    scene.finish()
    stage.agrees(scene)


@claims.add
def an_engine_killed_with_rows_inside_costs_no_row(stage: Stage) -> None:
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["engine.submit.after:5=engine"]).code == 3
    stage.agrees(scene)


@claims.add
def an_engine_that_is_stopped_counts_as_hung(stage: Stage) -> None:
    scene = stage.scene(altered(SLOW, HANG_TIMEOUT_S=1))
    running = held(scene)
    assert running.signal_engine(signal.SIGSTOP)
    go(scene)
    ends(running, 3)
    assert '"event": "engine_died"' in (scene.home / "logs" / "nightmill.log").read_text()
    stage.agrees(scene)


@pytest.mark.parametrize("claim", claims.params())
def test_still_true(claim, claimed):
    claimed[claim].result()
