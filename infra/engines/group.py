"""Process groups: who is in one, and how to end all of it with nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 where Linux keeps it, not a temporary file of ours
GONE_TIMEOUT_S = 10.0
"""How long a killed group may take to give its memory back before we go on without it."""
_MAPPED = re.compile(rf"{SHARED_MEMORY}/((?:psm_|torch_|nccl-|sem\.mp-)\S+)")


def end_group(pgid: int, segments: Iterable[str] = ()) -> None:
    """Kill every process of the group, wait until they are gone, and remove the shared memory they leave.

    A killed engine cannot unlink its segments; vLLM's message queue alone is one of 240 MiB. `segments`: those that
    `shared_memory` told of earlier, of processes that may be gone by now.
    """
    segments = {*segments, *shared_memory(pgid)}
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        os.killpg(pgid, signal.SIGKILL)
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while group_alive(pgid) and time.monotonic() < deadline:
        time.sleep(0.01)
    for name in segments:
        with contextlib.suppress(OSError):
            (SHARED_MEMORY / name).unlink()


def group_alive(pgid: int) -> bool:
    """Whether a process of this group still runs. A zombie holds no memory and does not count."""
    if _has_proc():
        return bool(members(pgid))
    try:
        os.killpg(pgid, 0)
    except OSError:
        return False
    return True


def members(pgid: int) -> list[int]:
    """The processes of the group, without zombies. Empty where there is no /proc."""
    if not _has_proc():
        return []
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit() and _is_member(entry, pgid)]


def shared_memory(pgid: int) -> set[str]:
    """Names of the shared memory that the group's processes use and nobody would remove after a kill."""
    pids = {pgid, *members(pgid)}  # the leader may be gone already, and its name is known
    openmp = {entry.name for pid in pids for entry in SHARED_MEMORY.glob(f"__KMP_REGISTERED_LIB_{pid}_*")}
    return openmp.union(*map(_mapped, pids))


def _has_proc() -> bool:
    return (PROC / "self" / "stat").exists()


def _is_member(entry: Path, pgid: int) -> bool:
    try:
        state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
    except OSError:  # it ended while we looked
        return False
    return int(group) == pgid and state not in "ZX"


def _mapped(pid: int) -> set[str]:
    try:
        return set(_MAPPED.findall((PROC / str(pid) / "maps").read_text()))
    except OSError:
        return set()
