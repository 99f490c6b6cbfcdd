"""The scheduling of `nightmill up` in a process of its own: an interpreter lets one thread run at a time, however many
cores there are.

Its stdin takes the settings, then a line whenever there is something new: how many workers each pool may give work to,
by the pool's name, or null, which asks it to end. Where stdin is at its end the process above is gone, and this one
ends at once. Its stdout says where its figures are, once it leads all pools, and what ended it, if that was a fault.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

import orjson
import structlog

from infra.bootstrap import open_home
from infra.cores import all_cores, keep_to_one, next_one
from infra.heap import settle_heap
from infra.settings import Settings
from infra.settings.wire import from_json, to_json
from jobs.errors import Broken, Deposed, NightmillError
from workers.about import named_thread
from workers.loops import Alarm, steady
from workers.main import database_figures, show
from workers.scheduling import Scheduling

log = structlog.get_logger()

_FAULT_EXIT = 70
_TELL_S = 0.02
"""Between two lines: what it is told of comes hundreds of times a second, and a look deals with all of it."""
_COUNT_S = 0.5
"""Between two counts of the workers, where nothing else is told."""
_START_S = 30.0
_END_S = 30.0
_LEAST_S = 10.0
"""A process that was killed is replaced, unless it lived for less."""


class SchedulerEnded(Broken):
    """The scheduler's process ended: {reason}."""

    code = "scheduler_ended"


class Apart:
    """`start`, then `close`. alarm: rings when its process failed. workers: see `Scheduling`.

    A process that was killed is replaced: the new one takes the lead and goes on with what is in the database.
    """

    def __init__(self, settings: Settings, alarm: Alarm, *, workers: Callable[[], Mapping[str, int]]) -> None:
        self._settings = to_json(settings)
        self._alarm = alarm
        self._workers = workers
        self._new = threading.Event()
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._writing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._threads = [named_thread("hear-scheduler", self._hear), named_thread("tell-scheduler", self._tell)]
        self.target = ""
        """host:port of its figures; empty where it shows none."""

    def start(self) -> None:
        """Give it a while to take the lead of all pools. Raises what its process failed at."""
        for thread in self._threads:
            thread.start()
        self._ready.wait(_START_S)
        if self._alarm.error is not None:
            raise self._alarm.error

    def wake(self) -> None:
        """There is something new to schedule, or to keep."""
        self._new.set()

    def close(self) -> None:
        """It ends what is under way, or is killed after a while. What is not done stays in the database."""
        self._closing.set()
        self._new.set()
        hearing, _ = self._threads
        hearing.join(_END_S)
        if hearing.is_alive() and (process := self._process) is not None:
            log.warning("scheduler_killed", after_s=_END_S)
            process.kill()
            hearing.join()

    # ---- threads --------------------------------------------------------------------------------

    def _tell(self) -> None:
        told: Mapping[str, int] | None = None
        while not self._closing.is_set():
            woken = self._new.wait(_COUNT_S)
            self._new.clear()
            now = self._workers()
            if woken or now != told:
                self._write(now)
                told = now
                time.sleep(_TELL_S)
        self._write(None)

    def _write(self, message: Mapping[str, int] | None) -> None:
        """To one that is gone nothing needs to be told: `_hear` sees to it."""
        with self._writing, suppress(BrokenPipeError):
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(orjson.dumps(message) + b"\n")

    def _hear(self) -> None:
        while not self._closing.is_set():
            began_s = time.monotonic()
            process = self._begin()
            fault = self._listen(process)
            code = self._over(process)
            if self._closing.is_set():
                return
            if fault is None and time.monotonic() - began_s < _LEAST_S:
                fault = SchedulerEnded(reason=f"with exit code {code}, soon after its start")
            if fault is not None:
                self._alarm.ring(fault)
                self._ready.set()
                return
            log.warning("scheduler_replaced", exit_code=code)

    def _begin(self) -> subprocess.Popen[bytes]:
        core = next_one()
        with self._writing, all_cores():
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workers.apart", *([] if core is None else [str(core)])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                process_group=0,  # the terminal's Ctrl-C is not for it
            )
            with suppress(BrokenPipeError):
                _whole(process.stdin, self._settings + b"\n")
        self._new.set()
        return process

    def _over(self, process: subprocess.Popen[bytes]) -> int:
        """Its exit code."""
        code = process.wait()
        with self._writing:
            self._process = None
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        return code

    def _listen(self, process: subprocess.Popen[bytes]) -> NightmillError | None:
        """To its end; what it failed at, None where it said nothing of that."""
        assert process.stdout is not None
        for line in process.stdout:
            said = orjson.loads(line)
            if "deposed" in said:
                return Deposed(**said["deposed"])
            if "failed" in said:
                return SchedulerEnded(reason=said["failed"])
            self.target = said["figures"]
            self._ready.set()
        return None


def _whole(out: IO[bytes] | None, data: bytes) -> None:
    assert out is not None
    while data:
        data = data[out.write(data) :]


# ---- the process itself -------------------------------------------------------------------------


class _Last(Alarm):
    """A fault ends the process; the one above hears of it."""

    def __init__(self, out: IO[bytes]) -> None:
        super().__init__()
        self._out = out

    def ring(self, error: BaseException) -> None:
        log.critical("process_ends", error=repr(error), exc_info=error)
        reason = error.sentence if isinstance(error, NightmillError) else repr(error)
        said = {"deposed": error.data} if isinstance(error, Deposed) else {"failed": reason}
        self._out.write(orjson.dumps(said) + b"\n")
        os._exit(_FAULT_EXIT)


class _Told:
    """What stdin said last. wake: is called for each line."""

    def __init__(self, lines: IO[bytes]) -> None:
        self.workers: Mapping[str, int] = {}
        self.wake: Callable[[], None] = lambda: None
        self.end = threading.Event()
        self._lines = lines

    def read(self) -> None:
        for line in self._lines:
            workers = orjson.loads(line)
            if workers is None:
                self.end.set()
                return
            self.workers = workers
            self.wake()
        os._exit(0)


def main() -> None:
    """Until it is told to end. Its argument, if it has one, is the core to keep to."""
    if sys.argv[1:]:
        keep_to_one(int(sys.argv[1]))
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing else may be said there
    alarm = _Last(out)
    structlog.contextvars.bind_contextvars(role="scheduler")
    try:
        home = open_home(from_json(sys.stdin.buffer.readline()))
        told = _Told(sys.stdin.buffer)
        named_thread("told", told.read).start()
        scheduling = Scheduling(home, home.settings.pools, alarm, workers=lambda: told.workers)
        shown = show(home, {"role": "scheduler"}, [scheduling.figures, database_figures(home)])
        started = threading.Event()

        def start() -> None:
            scheduling.start()
            started.set()

        while not started.is_set():
            steady(start)()
    except Exception as error:  # noqa: BLE001 - the process's edge
        alarm.ring(error)
    told.wake = scheduling.wake
    out.write(orjson.dumps({"figures": shown.target}) + b"\n")
    settle_heap()
    told.end.wait()
    scheduling.close()
    shown.close()
    home.close()


if __name__ == "__main__":
    main()
