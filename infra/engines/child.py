"""The operating system's side of an engine: a process group with a socket, and certainty about its end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.cores import all_cores
from infra.engines.group import end_group, shared_memory
from infra.engines.last_words import read_tail
from infra.engines.link import Link


class Child:
    """One started engine process. Its group is the engine's whole tree, and this object can end all of it.

    It stays in our session. Where autogroups are on, Linux shares the processor out by session, and beside an engine
    that computes on every core a caller in another one heard of its tokens 50 ms late, all of a row's at once.
    """

    def __init__(self, log_path: Path, env: Mapping[str, str]) -> None:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log = log_path
        self._log_start = log_path.stat().st_size if log_path.exists() else 0  # bytes: what follows is of this start
        ours, theirs = socket.socketpair()
        life_read, self._life = os.pipe()
        command = [sys.executable, "-P", "-m", "infra.engines.host", str(theirs.fileno()), str(life_read)]
        try:
            with log_path.open("ab") as log, all_cores():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(env),
                    pass_fds=(theirs.fileno(), life_read),
                    process_group=0,  # no session of its own: see below
                )
        except OSError:
            ours.close()
            os.close(self._life)
            raise
        finally:
            theirs.close()
            os.close(life_read)
        self.link = Link(ours)
        self._segments: set[str] = set()

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

    def last_lines(self) -> list[str]:
        """The end of what this start logged."""
        return read_tail(self._log, self._log_start)

    def settled(self) -> None:
        """The engine is up: note what it holds that a later death of one of its processes would hide from `kill`."""
        self._segments = shared_memory(self.pid)

    def kill(self) -> None:
        """End every process of the group and wait until they are gone. Idempotent."""
        life, self._life = self._life, -1  # first of all: a signal handler may come here while another thread is here
        if life < 0:
            return
        end_group(self.pid, self._segments)
        self._process.wait()
        self.link.close()
        os.close(life)
