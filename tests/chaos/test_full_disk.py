"""A full disk, pretended and real, and databases that are wiped or do not answer: nothing is lost."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from contextlib import closing

import pytest

from tests.chaos import checker
from tests.chaos.plans import VARIANTS
from tests.chaos.stage import PLAIN, SLOW, Claim, Claims, Stage, ends, go, held

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
claims = Claims()


def no_room(at: str) -> Claim:
    """at: "POINT:N=ACTION"."""

    def made(stage: Stage) -> None:
        variant = "plain" if at.startswith("publish") else "ordered"
        scene = stage.scene(VARIANTS[variant])
        done = scene.nightmill(*scene.run_line(), at=[at])
        assert (done.code, "Free some space" in done.err) == (7, True), done
        scene.finish()
        stage.agrees(scene, variant)

    return made


OBJECTS = ("part.put.before:5", "staged.put.after:1", "part.put.before:1", "publish.before:1", "ordered.put.before:1")
ALL = ("part.put.after:4", "db.release.after:1", "db.lease.after:2", "db.fold.after:1", "manifest.put.after:1")
claims.family("no_room_for_objects_from_{}", [f"{point}=full" for point in OBJECTS], no_room)
claims.family("no_room_at_all_from_{}", [f"{point}=full-all" for point in ALL], no_room)


def small_disk(where: str) -> Claim:
    """A real one, with too little room below this folder, and made larger afterwards."""
    variant, size = SMALL[where]

    def made(stage: Stage) -> None:
        scene = stage.scene(VARIANTS[variant])
        disk = stage.folder / where
        disk.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root")
        try:
            done = scene.nightmill(*scene.run_line())
            assert (done.code, "Free some space" in done.err) == (7, True), done
            assert checker.leftovers(scene.home) == []
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            scene.finish()
            stage.agrees(scene, variant)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)

    return made


SMALL = {"out": ("plain", "60k"), "home": ("plain", "700k"), "home/objects": ("ordered", "20k")}
claims.family("a_small_disk_below_{}_stops_the_job_and_loses_nothing", SMALL, small_disk)


def locked(file: str) -> Claim:
    """By another process, for longer than SQLite waits (30 s)."""

    def made(stage: Stage) -> None:
        scene = stage.scene(SLOW)
        running = held(scene)
        with closing(sqlite3.connect(scene.home / file, isolation_level=None, timeout=60)) as connection:
            go(scene)
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(35)
            connection.execute("ROLLBACK")
        ends(running, 3)
        stage.agrees(scene)

    return made


claims.family("a_run_waits_for_{}_while_it_is_locked", ("queue.db", "nightmill.db"), locked, always=0)


@claims.add
def a_wiped_queue_is_a_delay_and_no_loss(stage: Stage) -> None:
    """The tasks that were released into it are found missing after 15 seconds."""
    scene = stage.scene(PLAIN)
    assert scene.nightmill(*scene.run_line(), at=["db.published.after:1"]).killed
    for file in scene.home.glob("queue.db*"):
        file.unlink()
    scene.finish()
    stage.agrees(scene)


@pytest.mark.parametrize("claim", claims.params())
def test_still_true(claim, claimed):
    claimed[claim].result()
