"""The operating system's side of an engine: a process group with a socket, and certainty about its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path


GONE_TIMEOUT_S = 10.0
"""How long a killed group may take to give its memory back before we go on without it."""


class Child:
    """One started engine process. Its group is the engine's whole tree, and this object can end all of it."""

    def __init__(self, log_path: Path, env: Mapping[str, str]) -> None:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self.log_start = log_path.stat().st_size if log_path.exists() else 0
        """Where this start's lines begin in the log file, in bytes."""
        ours, theirs = socket.socketpair()
        life_read, self._life = os.pipe()
        command = [sys.executable, "-P", "-m", "infra.engines.host", str(theirs.fileno()), str(life_read)]
        try:
            with log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(env),
                    pass_fds=(theirs.fileno(), life_read),
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            os.close(self._life)
            raise
        finally:
            theirs.close()
            os.close(life_read)
        ours.setblocking(False)
        self.sock = ours

    @property
    def pid(self) -> int:
        """Process id, and the id of its group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative is the number of the signal that ended it."""
        return self._process.poll()

    def wait_exit(self, timeout_s: float) -> int | None:
        """The exit code, waiting for it; None if it still runs after the time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End every process of the group and wait until they are gone. Idempotent."""
        if self._life < 0:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            pass
        self._process.wait()
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while group_alive(self.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.sock.close()
        os.close(self._life)
        self._life = -1


def group_alive(pgid: int) -> bool:
    """Whether a process of this group still runs. A zombie holds no memory and does not count."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        return _signal_reaches(pgid)
    return any(_member(entry, pgid) for entry in proc.iterdir() if entry.name.isdigit())


def _signal_reaches(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except OSError:
        return False
    return True


def _member(entry: Path, pgid: int) -> bool:
    try:
        state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
    except OSError:  # it ended while we looked
        return False
    return int(group) == pgid and state not in "ZX"


def exit_words(code: int) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
    hint = " (often: out of memory)" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{hint}"
