"""The other rows of the failure table: an engine that hangs or dies, a full disk, signals, and people who interfere.

The claims run beside each other: each mostly waits for processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.conftest import Quiet
from tests.chaos.plans import CHAT, VARIANTS
from tests.chaos.scene import Finished, Running, Scene, Variant

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

PLAIN = VARIANTS["plain"]


def altered(variant: Variant, *, engine: Mapping[str, object], settings: Mapping[str, object]) -> Variant:
    """The variant with some more engine arguments and settings; its results stay what they were."""
    return replace(variant, engine={**variant.engine, **engine}, settings={**variant.settings, **settings})


SLOW = altered(PLAIN, engine={"rows_per_s": 150, "max_num_seqs": 16}, settings={"SEGMENT_ROWS": 64})
"""PLAIN with few rows in the engine and few tasks planned ahead: most of the job lies before it for some seconds."""
MIDDLE = "db.commit.after:3"
CHECK_S = 45.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a claim gets: a folder of its own, and the quiet runs."""

    folder: Path
    quiet: Mapping[str, Quiet]

    def scene(self, variant: Variant, **options: object) -> Scene:
        return Scene(self.folder, variant, **options)  # type: ignore[arg-type]

    def agrees(self, scene: Scene, variant: str = "plain", **options: int) -> None:
        """The job has come to what a quiet run of this variant comes to."""
        assert checker.faults(scene, self.quiet[variant].ended, **options) == []


Claim = Callable[[Stage], None]
CLAIMS: dict[str, Claim] = {}


def claim(made: Claim) -> Claim:
    CLAIMS[made.__name__] = made
    return made


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + CHECK_S
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.02)


def held(scene: Scene, *at: str) -> Running:
    """A run that stands still at the point of its `hold`, with some tasks committed and most before it."""
    running = scene.start(*scene.run_line(), at=at or (f"{MIDDLE}=hold",))
    until(scene.hold.with_suffix(".held").exists, f"the hold of {at}")
    return running


def go(scene: Scene) -> None:
    """End the hold."""
    scene.hold.with_suffix(".go").touch()


def state_is(scene: Scene, state: str) -> None:
    until(lambda: (scene.job() or {}).get("state") == state, state)


def ends(running: Running, *codes: int) -> Finished:
    done = running.wait()
    assert done.code in codes, f"exit {done.code}: {done.err}"
    return done


# ---- the engine ---------------------------------------------------------------------------------


@claim
def an_engine_that_hangs_is_ended_and_its_rows_are_done_again(stage: Stage) -> None:
    hangs = {"hang_after_rows": 200, "max_num_seqs": 16}
    scene = stage.scene(altered(PLAIN, engine=hangs, settings={"HANG_TIMEOUT_S": 1}))
    assert scene.nightmill(*scene.run_line()).code == 3
    stage.agrees(scene)


@claim
def a_row_that_hangs_the_engine_is_one_error_row(stage: Stage) -> None:
    _only_these_die(stage, {40: "deadly"}, fault="hang_on", settings={"HANG_TIMEOUT_S": 1})


@claim
def rows_that_kill_the_engine_are_error_rows_and_their_neighbours_are_ok(stage: Stage) -> None:
    _only_these_die(stage, {5: "deadly", 40: "deadly", 41: "deadly", 100: "deadly"}, fault="die_on")


def _only_these_die(
    stage: Stage, words: Mapping[int, str], *, fault: str, settings: Mapping[str, object] | None = None
) -> None:
    variant = Variant(
        name="deadly",
        rows=112,
        options=(*CHAT, "--pause-on", "never"),
        engine={"max_num_seqs": 2, fault: "deadly"},
        settings=settings or {},
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


@claim
def an_engine_killed_at_its_start_leaves_a_job_that_resumes(stage: Stage) -> None:
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["engine.launch.after:1=engine"]).code == 7
    scene.finish()
    stage.agrees(scene)


@claim
def an_engine_killed_with_rows_inside_costs_no_row(stage: Stage) -> None:
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["engine.submit.after:5=engine"]).code == 3
    stage.agrees(scene)


# ---- signals ------------------------------------------------------------------------------------


@claim
def ctrl_c_keeps_what_is_finished_and_the_job_resumes(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    assert scene.nightmill(*scene.run_line(), at=[f"{MIDDLE}=int"]).code == 4
    job = scene.job()
    assert job is not None
    assert (job["state"], job["reason"]) == ("paused", "stopped by a signal")
    assert checker.leftovers(scene.home) == []
    assert scene.query("SELECT id FROM tasks WHERE state IN ('released', 'leased')") == []
    scene.finish()
    stage.agrees(scene)


@claim
def a_second_ctrl_c_stops_at_once_and_loses_nothing_that_was_committed(stage: Stage) -> None:
    scene = stage.scene(altered(SLOW, engine={"row_latency_s": 8}, settings={}))
    running = held(scene, "engine.submit.after:1=hold")
    running.signal(signal.SIGINT)
    go(scene)
    time.sleep(0.5)  # it drains: the rows inside take eight seconds
    began = time.monotonic()
    running.signal(signal.SIGINT)
    ends(running, 130)
    assert time.monotonic() - began < 4
    until(lambda: not checker.leftovers(scene.home), "the end of the engine")
    scene.finish()
    stage.agrees(scene)


@claim
def killed_while_it_drains_it_resumes(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    assert scene.nightmill(*scene.run_line(), at=["db.commit.after:2=int", "db.drain.before:1"]).killed
    scene.finish()
    stage.agrees(scene)


# ---- people who step in -------------------------------------------------------------------------


@claim
def pause_from_another_process_stops_the_run_and_resume_goes_on(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    assert scene.nightmill("pause", "last").code == 0
    go(scene)
    ends(running, 4)
    scene.finish()
    stage.agrees(scene)


@claim
def cancel_in_the_middle_accounts_for_every_row(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    assert scene.nightmill("cancel", "last").code == 0
    go(scene)
    ends(running, 5)
    _is_cancelled(stage, scene)


def cancel_of_a_run_that_ends(point: str) -> Claim:
    """The run was interrupted and stands at this point: whoever of the two is last ends the job."""

    def made(stage: Stage) -> None:
        scene = stage.scene(SLOW)
        running = held(scene, f"{MIDDLE}=int", f"{point}=hold")
        cancelling = scene.start("cancel", "last")
        state_is(scene, "cancelling")
        ends(cancelling, 0)
        go(scene)
        ends(running, 5)
        _is_cancelled(stage, scene)

    return made


for _point in ("db.drain.after:1", "db.set_state.after:1", "engine.stop.before:1", "engine.stop.after:1"):
    CLAIMS[f"a_cancel_that_meets_an_interrupted_run_at_{_point}_ends_the_job"] = cancel_of_a_run_that_ends(_point)


def cancelled_after_a_crash(point: str) -> Claim:
    def made(stage: Stage) -> None:
        scene = stage.scene(SLOW)
        running = held(scene, f"{MIDDLE}=hold", f"{point}:1=kill")
        assert scene.nightmill("cancel", "last").code == 0
        go(scene)
        done = running.wait()
        assert done.killed, f"exit {done.code}: {done.err}"
        scene.nightmill("cancel", "last")
        _is_cancelled(stage, scene)

    return made


for _point in ("db.sweep.before", "db.sweep.after", "void.put.before", "void.put.after", "db.finalise.before"):
    CLAIMS[f"a_crash_while_cancelling_at_{_point}_accounts_for_every_row"] = cancelled_after_a_crash(_point)


@claim
def a_cancel_after_the_manifest_was_written_comes_too_late(stage: Stage) -> None:
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["manifest.put.after:1"]).killed
    assert scene.nightmill("cancel", "last").code == 0
    stage.agrees(scene)


def _is_cancelled(stage: Stage, scene: Scene) -> None:
    """Every row is there, those that were generated are as in a quiet run, and only they are paid for."""
    job = scene.job()
    assert job is not None
    assert job["state"] == "cancelled"
    assert checker.faults(scene) == []
    quiet = {row["row"]: row for row in stage.quiet["plain"].ended.table.to_pylist()}
    rows = checker.read(scene).table.to_pylist()
    assert len(rows) == len(quiet)
    done = [row for row in rows if row["outcome"] != "cancelled"]
    assert done == [quiet[row["row"]] for row in done]
    assert 0 < len(done) < len(rows)
    assert not any(row["amount_pico"] for row in rows if row["outcome"] == "cancelled")


@claim
def resume_while_another_process_runs_the_job_is_a_conflict(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    again = scene.nightmill("resume", "last")
    assert (again.code, f"process {running.process.pid}" in again.err) == (8, True), again.err
    go(scene)
    ends(running, 3)
    stage.agrees(scene)


@claim
def the_same_run_twice_at_once_makes_one_job(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    assert scene.nightmill(*scene.run_line()).code == 8
    go(scene)
    ends(running, 3)
    assert len(scene.query("SELECT id FROM jobs")) == 1
    stage.agrees(scene)


@claim
def two_runs_at_once_in_one_new_home_are_both_exact(stage: Stage) -> None:
    home = stage.folder / "home"
    scenes = [Scene(stage.folder / key, PLAIN, home=home, key=key) for key in ("one", "two")]
    for running in [scene.start(*scene.run_line()) for scene in scenes]:
        ends(running, 3)
    for scene in scenes:
        stage.agrees(scene, jobs=2)


@claim
def a_crash_of_one_run_does_not_touch_the_other(stage: Stage) -> None:
    home = stage.folder / "home"
    scenes = [Scene(stage.folder / key, PLAIN, home=home, key=key) for key in ("one", "two")]
    runs = [scenes[0].start(*scenes[0].run_line(), at=["db.commit.before:4"])]
    runs.append(scenes[1].start(*scenes[1].run_line()))
    assert runs[0].wait().killed
    scenes[0].finish()
    ends(runs[1], 3)
    for scene in scenes:
        stage.agrees(scene, jobs=2)


@claim
def resume_refuses_an_input_that_changed_and_names_it(stage: Stage) -> None:
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["db.commit.after:3"]).killed
    before = scene.input.stat()
    os.utime(scene.input, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    refused = scene.nightmill("resume", "last")
    assert (refused.code, scene.input.name in refused.err) == (2, True), refused.err
    os.utime(scene.input, ns=(before.st_atime_ns, before.st_mtime_ns))
    scene.finish()
    stage.agrees(scene)


# ---- the disk and the queue ---------------------------------------------------------------------


def full_disk(point: str, action: str) -> Claim:
    def made(stage: Stage) -> None:
        variant = "plain" if point.startswith("publish") else "ordered"
        scene = stage.scene(VARIANTS[variant])
        done = scene.nightmill(*scene.run_line(), at=[f"{point}={action}"])
        assert (done.code, "Free some space" in done.err) == (7, True), done
        scene.finish()
        stage.agrees(scene, variant)

    return made


for _at in ("staged.put.after:1", "part.put.before:1", "part.put.before:5", "publish.before:1", "ordered.put.before:1"):
    CLAIMS[f"no_room_for_objects_from_{_at}"] = full_disk(_at, "full")
for _at in ("db.release.after:1", "db.lease.after:2", "part.put.after:4", "db.fold.after:1", "manifest.put.after:1"):
    CLAIMS[f"no_room_at_all_from_{_at}"] = full_disk(_at, "full-all")


def small_disk(*, all_on_it: bool) -> Claim:
    """A real one: a small tmpfs, made larger afterwards. all_on_it: the data directory too, not only the results."""

    def made(stage: Stage) -> None:
        disk = stage.folder / "disk"
        disk.mkdir(parents=True)
        size = "700k" if all_on_it else "60k"
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=False)
        if mount.returncode:
            pytest.skip("mounting a small file system needs root")
        try:
            scene = stage.scene(PLAIN, home=disk / "home" if all_on_it else None)
            scene.out = disk / "out"
            done = scene.nightmill(*scene.run_line())
            assert done.code == 7, done
            assert checker.leftovers(scene.home) == []
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            scene.finish()
            stage.agrees(scene)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    return made


CLAIMS["a_small_disk_for_results_pauses_the_job_and_loses_nothing"] = small_disk(all_on_it=False)
CLAIMS["a_small_disk_for_everything_stops_the_job_and_loses_nothing"] = small_disk(all_on_it=True)


@claim
def a_wiped_queue_is_a_delay_and_no_loss(stage: Stage) -> None:
    """The tasks that were released into it are found missing after 15 seconds."""
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["db.published.after:1"]).killed
    for file in scene.home.glob("queue.db*"):
        file.unlink()
    scene.finish()
    stage.agrees(scene)


# ---- running them -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def claims(request, pool, quiet, tmp_path_factory):
    """name → its run, of all claims that are asked for in this session."""
    root = tmp_path_factory.mktemp("claims")
    wanted = [item.callspec.params["name"] for item in request.session.items if item.originalname == "test_still_true"]
    stages = {name: Stage(folder=root / f"claim-{number}", quiet=quiet) for number, name in enumerate(wanted)}
    return {name: pool.submit(CLAIMS[name], stages[name]) for name in wanted}


@pytest.mark.parametrize("name", CLAIMS)
def test_still_true(name, claims):
    claims[name].result()
