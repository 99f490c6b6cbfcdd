"""What a command's processes take while it runs: peak memory and CPU time of each."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.benchmarks import machine

LOOK_S = 0.2


@dataclass(slots=True, kw_only=True)
class Seen:
    """One process. peak_bytes: resident, pages shared with others counted in full."""

    name: str
    peak_bytes: int = 0
    cpu_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Watched:
    """A command that ended.

    others: share of the machine's CPU time that went to other processes meanwhile; a figure measured beside a busy
    neighbour says little.
    """

    exit_code: int
    stdout: str
    began_at: float
    wall_s: float
    others: float
    processes: Sequence[Seen]


@dataclass(slots=True)
class _Tree:
    root: psutil.Process
    seen: dict[tuple[int, float], Seen] = field(default_factory=dict)

    def look(self) -> None:
        try:
            processes = [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                self._note(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError):
                continue

    def _note(self, process: psutil.Process) -> None:
        key = (process.pid, process.create_time())
        with process.oneshot():
            times = process.cpu_times()
            peak = _peak_bytes(process)
            seen = self.seen.setdefault(key, Seen(name=""))
            seen.name = self._name(process) or seen.name
        seen.peak_bytes = max(seen.peak_bytes, peak)
        seen.cpu_s = times.user + times.system

    def _name(self, process: psutil.Process) -> str:
        if process.pid == self.root.pid:
            return "main"
        words = process.cmdline()
        if "infra.engines.host" in words:
            return "engine host" if process.ppid() == self.root.pid else "engine's guard"
        return words[0] if words and words[0].startswith("VLLM") else process.name()


def watched(command: Sequence[str], *, env: Mapping[str, str], log: Path) -> Watched:
    """Run the command to its end, its errors going to the log."""
    began, began_at, busy_s = time.monotonic(), time.time(), machine.busy_s()
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=errors, text=True)
        tree = _Tree(psutil.Process(process.pid))
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(tree, over))
        watcher.start()
        stdout, _ = process.communicate()
        wall_s = time.monotonic() - began
        over.set()
        watcher.join()
    ours_s = sum([seen.cpu_s for seen in tree.seen.values()])
    others_s = max(0.0, machine.busy_s() - busy_s - ours_s)
    return Watched(
        exit_code=process.returncode,
        stdout=stdout,
        began_at=began_at,
        wall_s=wall_s,
        others=others_s / (wall_s * (psutil.cpu_count() or 1)),
        processes=sorted(tree.seen.values(), key=lambda seen: -seen.peak_bytes),
    )


def _watch(tree: _Tree, over: threading.Event) -> None:
    while not over.wait(LOOK_S):
        tree.look()


def _peak_bytes(process: psutil.Process) -> int:
    """The kernel's own high-water mark where it keeps one, so that no peak is missed between two looks."""
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    resident: int = process.memory_info().rss
    return resident
