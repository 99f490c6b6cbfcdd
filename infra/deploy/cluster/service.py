"""A service: a process of its own session, with a folder, a log, a process id on disk and a health check."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LOG = "log"
_PID = "pid"
_TAIL_LINES = 15
_STEP_S = 0.1


class Failed(Exception):
    """One sentence (and, of a service that ended, the end of its log) for the person at the terminal."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """command: run in the foreground; it is given to `user` if there is one. ready: whether it can be used now.

    before: what has to be made before it can start (idempotent). after: what has to be made once it runs (idempotent).
    """

    name: str
    folder: Path
    command: Sequence[str]
    ready: Callable[[], bool]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    stop_signal: signal.Signals = signal.SIGTERM
    start_s: float = 90.0
    stop_s: float = 20.0

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def pid(self) -> int | None:
        """Of the running process; a number that another process has got since is not taken for it."""
        try:
            pid, born = (self.folder / _PID).read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if _born(int(pid)) == born else None

    def start(self) -> bool:
        """Start it and wait until it is ready; False if it ran already. Raises Failed with the end of its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        running = self.pid is not None
        if not running:
            self.before()
            self._spawn()
        self._wait()
        self.after()
        return not running

    def stop(self) -> bool:
        """End it and wait; False if it did not run."""
        pid = self.pid
        if pid is None:
            return False
        _signal(pid, self.stop_signal)
        if not self._gone(pid, self.stop_s):
            _signal(pid, signal.SIGKILL)
            self._gone(pid, self.stop_s)
        return True

    def kill(self) -> None:
        """As a crash does."""
        pid = self.pid
        if pid is not None:
            _signal(pid, signal.SIGKILL)
            self._gone(pid, self.stop_s)

    def _spawn(self) -> None:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self.env},
                start_new_session=True,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
            )
        (self.folder / _PID).write_text(f"{process.pid} {_born(process.pid)}")
        _OURS[process.pid] = process

    def _wait(self) -> None:
        until = time.monotonic() + self.start_s
        while not self.ready():
            if self.pid is None:
                raise Failed(f"{self.name} has ended. {self.log} says:\n{self._tail()}")
            if time.monotonic() > until:
                raise Failed(f"{self.name} is not ready after {self.start_s:g} s. {self.log} says:\n{self._tail()}")
            time.sleep(_STEP_S)

    def _gone(self, pid: int, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while self.pid == pid:
            if time.monotonic() > until:
                return False
            time.sleep(_STEP_S / 2)
        (self.folder / _PID).unlink(missing_ok=True)
        return True

    def _tail(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return "(nothing)"
        return "\n".join(lines[-_TAIL_LINES:])


_OURS: dict[int, subprocess.Popen[bytes]] = {}
"""Children of this process: they have to be waited for, or they stay as zombies."""


@atexit.register
def _forget() -> None:
    """What was killed is collected; what still runs is meant to outlive this process, and is no leak to warn of."""
    for child in _OURS.values():
        if child.poll() is None:
            child.returncode = 0


def _signal(pid: int, which: signal.Signals) -> None:
    """To the whole session: a shell or a supervisor in front must not survive alone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, which)


def _born(pid: int) -> str:
    """When a process began, in whatever unit this system tells it; "" if there is none, or only its zombie."""
    child = _OURS.get(pid)
    if child is not None and child.poll() is not None:
        return ""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip().replace(" ", "_")
    return "" if fields[0] == "Z" else fields[19]


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on. Another process may take one before it is used; then a start fails and says so."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
