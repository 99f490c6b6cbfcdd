"""What a command's processes take while it runs: peak memory and CPU time of each."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
class Tree:
    """A process and all below it. before_s: CPU time that they had when watching began."""

    root: psutil.Process
    seen: dict[tuple[int, float], Seen] = field(default_factory=dict)
    before_s: dict[tuple[int, float], float] = field(default_factory=dict)

    def begin(self) -> None:
        """From here on CPU time counts."""
        self.look()
        self.before_s = {key: seen.cpu_s for key, seen in self.seen.items()}

    def by_name(self) -> list[Seen]:
        """Processes of one name together, the dearest first. peak_bytes: of the largest."""
        found: dict[str, Seen] = {}
        for key, seen in self.seen.items():
            same = found.setdefault(seen.name, Seen(name=seen.name))
            same.cpu_s += seen.cpu_s - self.before_s.get(key, 0.0)
            same.peak_bytes = max(same.peak_bytes, seen.peak_bytes)
        return sorted(found.values(), key=lambda seen: -seen.cpu_s)

    def processes(self) -> list[psutil.Process]:
        """Those to look at now. Raises NoSuchProcess once there are none."""
        return [self.root, *self.root.children(recursive=True)]

    def look(self) -> None:
        try:
            processes = self.processes()
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
        if words and words[0].startswith("ray::"):
            return words[0].partition(".")[0]
        if "workers.apart" in words:
            return "scheduler"
        if "moto.server" in words:
            return "S3 server"
        if "infra.engines.host" in words:
            above = process.parent()
            return "engine's guard" if above and "infra.engines.host" in above.cmdline() else "engine host"
        return words[0] if words and words[0].startswith("VLLM") else process.name()


def watched(command: Sequence[str], *, env: Mapping[str, str], log: Path) -> Watched:
    """Run the command to its end, its errors going to the log."""
    began, began_at, busy_s = time.monotonic(), time.time(), machine.busy_s()
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=errors, text=True)
        tree = Tree(psutil.Process(process.pid))
        with watching(tree):
            stdout, _ = process.communicate()
            wall_s = time.monotonic() - began
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


@contextmanager
def watching(tree: Tree) -> Iterator[None]:
    """Look at it now and then meanwhile."""
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(tree, over))
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(tree: Tree, over: threading.Event) -> None:
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
