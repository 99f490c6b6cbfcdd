"""A trap waits for the N-th pass of a named point and then does one thing: kill the process, fill the disk, …"""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

HOLD_S = 60.0
"""A hold that nobody ends ends itself."""
ACTIONS = {
    "kill": "SIGKILL to the process itself",
    "engine": "SIGKILL to the engine's process group",
    "int": "SIGINT to the process itself, once",
    "full": "from now on no object can be written: ENOSPC",
    "full-all": "as full, and no database transaction can be committed either",
    "hold": "wait at the point: HOLD.held appears, and the process goes on once HOLD.go is there",
}


@dataclass(frozen=True, slots=True)
class Spring:
    """At the `number`-th pass of the point, do the action."""

    point: str
    number: int
    action: str


@dataclass(slots=True, kw_only=True)
class Trap:
    """hold: the path that `hold` makes its two file names of, HOLD.held and HOLD.go."""

    springs: tuple[Spring, ...] = ()
    hold: Path = Path("trap")
    passes: Counter[str] = field(default_factory=Counter)
    engine_pid: int | None = None
    full: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hit(self, point: str) -> None:
        """A point was passed."""
        with self._lock:
            self.passes[point] += 1
            number = self.passes[point]
        for spring in self.springs:
            if (spring.point, spring.number) == (point, number):
                self._do(spring.action)

    def kills_next(self, point: str) -> bool:
        """Whether the next pass of this point is the last."""
        return Spring(point, self.passes[point] + 1, "kill") in self.springs

    def _do(self, action: str) -> None:
        match action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "engine":
                if self.engine_pid is not None:
                    os.killpg(self.engine_pid, signal.SIGKILL)
            case "int":
                os.kill(os.getpid(), signal.SIGINT)
            case "full" | "full-all":
                self.full = action
            case "hold":
                self._wait()

    def _wait(self) -> None:
        self.hold.with_suffix(".held").touch()
        until = time.monotonic() + HOLD_S
        while not self.hold.with_suffix(".go").exists() and time.monotonic() < until:
            time.sleep(0.01)

    def check_objects(self) -> None:
        """Raises what a full disk raises."""
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def check_database(self) -> None:
        """Raises what SQLite raises on a full disk."""
        if self.full == "full-all":
            raise sqlite3.OperationalError("database or disk is full")
