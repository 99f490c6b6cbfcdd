"""People and the machine step in: Ctrl-C, pause, cancel, a second run, a deadline, a laptop's lid."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest

from tests.chaos import checker
from tests.chaos.scene import Scene
from tests.chaos.stage import MIDDLE, PLAIN, SLOW, Claim, Claims, Stage, altered, committed, ends, go, held, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
claims = Claims()


@claims.add
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


@claims.add
def a_second_ctrl_c_stops_at_once_and_loses_nothing_that_was_committed(stage: Stage) -> None:
    scene = stage.scene(altered(SLOW, engine={"row_latency_s": 8}))
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


def killed_while_it_drains(point: str) -> Claim:
    def made(stage: Stage) -> None:
        scene = stage.scene(SLOW)
        assert scene.nightmill(*scene.run_line(), at=[f"{MIDDLE}=int", f"{point}:1"]).killed
        scene.finish()
        stage.agrees(scene)

    return made


claims.family(
    "a_crash_at_{}_while_ctrl_c_drains_is_resumed",
    ("db.withdraw.after", "db.withdraw.before", "db.drain.before", "db.drain.after", "db.set_state.after"),
    killed_while_it_drains,
)


@claims.add
def ctrl_c_before_the_engine_is_ready_leaves_a_job_that_resumes(stage: Stage) -> None:
    scene = stage.scene(altered(PLAIN, engine={"start_s": 8}))
    running = scene.start(*scene.run_line())
    until(lambda: scene.query("SELECT id FROM tasks"), "the first plan")
    running.signal(signal.SIGINT)
    ends(running, 4)
    scene.finish()
    stage.agrees(scene)


@claims.add
def a_process_that_was_suspended_goes_on(stage: Stage) -> None:
    """Longer than its leases last, and longer than an engine may take: a laptop's lid."""
    scene = stage.scene(altered(SLOW, HANG_TIMEOUT_S=1, LEASE_S=1))
    running = held(scene)
    running.signal(signal.SIGSTOP)
    go(scene)
    assert scene.nightmill("resume", "last").code == 8
    time.sleep(2)
    running.signal(signal.SIGCONT)
    ends(running, 3)
    stage.agrees(scene)


@claims.add
def a_worker_whose_lease_ran_out_while_it_wrote_has_no_effect(stage: Stage) -> None:
    """It stands between its part and the commit, no beat renews its lease, and its task is done again meanwhile."""
    scene = stage.scene(altered(PLAIN, LEASE_S=3))
    running = held(scene, "beat.step.before:1=hold", "part.put.after:2=hold")
    until(lambda: committed(scene) == PLAIN.rows, "all rows, without the one that stands still")
    go(scene)
    ends(running, 3)
    assert scene.query("SELECT cause FROM wastes WHERE cause = 'lease_lost'")
    stage.agrees(scene)


# ---- people who step in -------------------------------------------------------------------------


@claims.add
def pause_from_another_process_stops_the_run_and_resume_goes_on(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    assert scene.nightmill("pause", "last").code == 0
    go(scene)
    ends(running, 4)
    scene.finish()
    stage.agrees(scene)


@claims.add
def cancel_in_the_middle_accounts_for_every_row(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    assert scene.nightmill("cancel", "last").code == 0
    go(scene)
    ends(running, 5)
    _is_cut_short(stage, scene, "cancelled")


def cancel_of_a_run_that_ends(point: str) -> Claim:
    """The run was interrupted and stands at this point: whoever of the two is last ends the job."""

    def made(stage: Stage) -> None:
        scene = stage.scene(SLOW)
        running = held(scene, f"{MIDDLE}=int", f"{point}=hold")
        cancelling = scene.start("cancel", "last")
        ends(cancelling, 0)
        go(scene)
        ends(running, 5)
        _is_cut_short(stage, scene, "cancelled")

    return made


claims.family(
    "a_cancel_that_meets_an_interrupted_run_at_{}_ends_the_job",
    ("engine.stop.after:1", "engine.stop.before:1", "db.set_state.after:1", "db.drain.after:1"),
    cancel_of_a_run_that_ends,
)


@claims.add
def a_cancel_that_meets_a_resume_ends_the_job(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    assert scene.nightmill(*scene.run_line(), at=[f"{MIDDLE}=int"]).code == 4
    resuming = scene.start(*scene.next_line(), at=["lock.claim.after:1=hold"])
    until(scene.hold.with_suffix(".held").exists, "the claim")
    assert scene.nightmill("cancel", "last").code == 0
    go(scene)
    ends(resuming, 2)
    _is_cut_short(stage, scene, "cancelled")


def cancelled_after_a_crash(point: str) -> Claim:
    def made(stage: Stage) -> None:
        scene = stage.scene(SLOW)
        running = held(scene, f"{MIDDLE}=hold", f"{point}:1=kill")
        assert scene.nightmill("cancel", "last").code == 0
        go(scene)
        done = running.wait()
        assert done.killed, f"exit {done.code}: {done.err}"
        scene.nightmill("cancel", "last")
        _is_cut_short(stage, scene, "cancelled")

    return made


claims.family(
    "a_crash_while_cancelling_at_{}_accounts_for_every_row",
    ("db.sweep.after", "db.sweep.before", "void.put.before", "void.put.after", "db.finalise.before"),
    cancelled_after_a_crash,
)


def cancel_killed(point: str) -> Claim:
    """No process runs the job: the command itself ends it, until it is killed."""

    def made(stage: Stage) -> None:
        scene = stage.scene(SLOW)
        assert scene.nightmill(*scene.run_line(), at=[f"{MIDDLE}=int"]).code == 4
        assert scene.nightmill("cancel", "last", at=[f"{point}:1"]).killed
        assert scene.nightmill("cancel", "last").code == 0
        _is_cut_short(stage, scene, "cancelled")

    return made


claims.family(
    "a_cancel_killed_at_{}_is_finished_by_the_next",
    (
        "db.finalise.after",
        "db.set_state.after",
        "db.plan_segment.before",
        "db.sweep.before",
        "void.put.after",
        "manifest.put.after",
        "success.put.after",
        "delete.before",
    ),
    cancel_killed,
)


@claims.add
def a_cancel_after_the_manifest_was_written_comes_too_late(stage: Stage) -> None:
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["manifest.put.after:1"]).killed
    assert scene.nightmill("cancel", "last").code == 0
    stage.agrees(scene)


def _is_cut_short(stage: Stage, scene: Scene, end: str) -> None:
    """Every row is there, those that were generated are as in a quiet run, and only they are paid for."""
    job = scene.job()
    assert job is not None
    assert job["state"] == end
    assert checker.faults(scene) == []
    quiet = {row["row"]: row for row in stage.quiet["plain"].ended.table.to_pylist()}
    rows = checker.read(scene).table.to_pylist()
    assert len(rows) == len(quiet)
    done = [row for row in rows if row["outcome"] != end]
    assert done == [quiet[row["row"]] for row in done]
    assert 0 < len(done) < len(rows)
    assert not any(row["amount_pico"] for row in rows if row["outcome"] == end)


@claims.add
def a_deadline_that_passes_makes_the_rest_expired_rows(stage: Stage) -> None:
    scene = stage.scene(replace(SLOW, options=(*SLOW.options, "--deadline", "4s")))
    running = held(scene)
    time.sleep(4)
    go(scene)
    ends(running, 5)
    _is_cut_short(stage, scene, "expired")


@claims.add
def a_deadline_that_passes_while_no_process_runs_does_too(stage: Stage) -> None:
    scene = stage.scene(replace(SLOW, options=(*SLOW.options, "--deadline", "4s")))
    assert scene.nightmill(*scene.run_line(), at=[MIDDLE]).killed
    time.sleep(4)
    assert scene.nightmill(*scene.next_line()).code == 5
    _is_cut_short(stage, scene, "expired")


@claims.add
def resume_while_another_process_runs_the_job_is_a_conflict(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    again = scene.nightmill("resume", "last")
    assert (again.code, f"process {running.process.pid}" in again.err) == (8, True), again.err
    go(scene)
    ends(running, 3)
    stage.agrees(scene)


@claims.add
def the_book_is_sound_in_the_middle_of_a_run_too(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    assert scene.nightmill("ledger", "verify").code == 0
    go(scene)
    ends(running, 3)
    assert scene.nightmill("ledger", "verify").code == 0
    stage.agrees(scene)


@claims.add
def the_same_run_twice_at_once_makes_one_job(stage: Stage) -> None:
    scene = stage.scene(SLOW)
    running = held(scene)
    assert scene.nightmill(*scene.run_line()).code == 8
    go(scene)
    ends(running, 3)
    assert len(scene.query("SELECT id FROM jobs")) == 1
    stage.agrees(scene)


@claims.add
def two_runs_at_once_in_one_new_home_are_both_exact(stage: Stage) -> None:
    home = stage.folder / "home"
    scenes = [Scene(stage.folder / key, PLAIN, home=home, key=key) for key in ("one", "two")]
    for running in [scene.start(*scene.run_line()) for scene in scenes]:
        ends(running, 3)
    for scene in scenes:
        stage.agrees(scene, jobs=2)


@claims.add
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


@claims.add
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


@pytest.mark.parametrize("claim", claims.params())
def test_still_true(claim, claimed):
    claimed[claim].result()
