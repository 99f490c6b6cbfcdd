"""Processes of the command line without the cost of its imports: one process imports all of it, then forks for each.

A command of its own takes half a second of one core to import its libraries; forked it takes a few milliseconds, and is
a process all the same: with its own session, directory, environment, files and signals.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from select import select
from typing import BinaryIO

from api.cli.main import main

MODULES = (
    "alembic.command",
    "api.cli.driving",
    "api.cli.jobs",
    "api.cli.ledger",
    "api.cli.models",
    "api.cli.prices",
    "api.cli.quoting",
    "api.cli.results",
    "api.cli.retrying",
    "api.cli.run",
    "infra.data.intake",
    "infra.data.publish",
    "infra.data.wiring",
    "infra.doctor",
    "infra.models.registry",
    "infra.models.tokenizer",
    "infra.objects.s3",
    "infra.queue",
    "infra.sql",
    "infra.sql.migrations.versions.rev_0001_initial",
)


class Forkery:
    """`start` a command line; `close` at the end."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forkery", str(theirs.fileno())],
                cwd=Path(__file__).parents[2],
                pass_fds=[theirs.fileno()],
            )
        if not self._channel.recv(64):
            msg = "the command line cannot be imported; see stderr"
            raise RuntimeError(msg)

    def start(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: BinaryIO, err: BinaryIO
    ) -> ForkedProcess:
        """One command line, its output into the two files."""
        order = json.dumps({"argv": [*argv], "cwd": str(cwd), "env": {**env}}).encode()
        reading, writing = os.pipe()
        socket.send_fds(self._channel, [order], [out.fileno(), err.fileno(), writing])
        os.close(writing)
        return ForkedProcess(reading)

    def close(self) -> None:
        self._channel.close()
        self._process.wait()


class ForkedProcess:
    """pid: also the id of its session and its process group."""

    def __init__(self, report: int) -> None:
        self._report = os.fdopen(report, "rb", buffering=0)
        self.pid = int(self._report.readline())
        self.code: int | None = None

    def wait(self, timeout_s: float) -> int:
        """Its exit code, negative for a signal. Raises TimeoutError."""
        if self.code is None:
            if not select([self._report], [], [], timeout_s)[0]:
                msg = f"process {self.pid} is still there after {timeout_s} s"
                raise TimeoutError(msg)
            self.code = int(self._report.readline())
            self._report.close()
        return self.code

    def send(self, number: signal.Signals) -> None:
        """To the whole process group, as a terminal's Ctrl-C goes."""
        if self.code is None:
            os.killpg(self.pid, number)

    def close(self) -> None:
        """End it if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self.wait(10.0)


def serve(channel: socket.socket) -> None:
    """Fork for one order after another, until the channel closes."""
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()  # else each process looks through all of it once more at its end
    channel.send(b"ready")
    while True:
        order, files, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        _reap()
        if not order:
            return
        if os.fork() == 0:
            channel.close()
            _supervise(json.loads(order), *files)
            return
        for file in files:
            os.close(file)


def _reap() -> None:
    """Supervisors that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _supervise(order: dict[str, object], out: int, err: int, report: int) -> None:
    """Fork once more, and tell how that one ended: only its parent learns it. Returns in the new process only."""
    pid = os.fork()
    if pid == 0:
        os.close(report)
        _become(order, out, err)
        return
    os.write(report, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(order: dict[str, object], out: int, err: int) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(str(order["cwd"]))
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[call-overload]  # a mapping of texts
    sys.argv = ["nightmill", *order["argv"]]  # type: ignore[misc]  # a list of texts
    main()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
