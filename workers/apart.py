"""The scheduling of `nightmill up` in a process of its own: an interpreter lets one thread run at a time, however many
cores there are.

Its stdin takes the settings, then a line whenever there is something new: how many workers each pool may give work to,
by the pool's name, or null, which asks it to end. Where stdin is at its end the process above is gone, and this one
ends at once. Its stdout says where its figures are, once it leads all pools, and what ended it, if that was a fault.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

import orjson
import structlog

from infra.bootstrap import Home, open_home
from infra.cores import all_cores, keep_to_one, next_one
from infra.engines.environment import with_package
from infra.heap import settle_heap
from infra.metrics import Shown
from infra.settings import Settings
from infra.settings.wire import from_json, to_json
from jobs.errors import Broken, NightmillError
from jobs.figures import Source
from workers.about import named_thread
from workers.loops import Alarm, steady
from workers.main import show
from workers.scheduling import Scheduling

log = structlog.get_logger()

_FAULT_EXIT = 70
_END = b"null\n"
_TELL_S = 0.02
"""Between two lines: what it is told of comes hundreds of times a second, and a look deals with all of it."""
_COUNT_S = 0.5
"""Between two counts of the workers, where nothing else is told."""
_END_S = 30.0
_LEAST_S = 10.0
"""A process that leads for less is not proven."""
_TRIES = 3
"""So many in a row may not be proven; and the very first one must come to lead."""
_REST_S = 1.0


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
        self._closing = threading.Event()
        self._writing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._hearing = named_thread("hear-scheduler", lambda: self._guarded(self._hear))
        self._telling = named_thread("tell-scheduler", lambda: self._guarded(self._tell))
        self._led_s: float | None = None
        self.led = False
        """Whether its process has led all pools."""
        self.target = ""
        """host:port of its figures; empty where it shows none."""

    def start(self) -> None:
        """Begin its process; `led` says when that is ready."""
        self._hearing.start()
        self._telling.start()

    def wake(self) -> None:
        """There is something new to schedule, or to keep."""
        self._new.set()

    def sources(self) -> list[Source]:
        """Its process shows its figures itself, at `target`."""
        return []

    def close(self) -> None:
        """It ends what is under way, or is killed after a while. What is not done stays in the database."""
        self._closing.set()
        self._new.set()
        self._hearing.join(_END_S)
        if self._hearing.is_alive() and (process := self._process) is not None:
            log.warning("scheduler_killed", after_s=_END_S)
            process.kill()
            self._hearing.join()

    # ---- threads --------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # the thread's edge: whatever ended it is shown by the main thread
            log.error("scheduler_lost", error=repr(error), exc_info=error)
            self._alarm.ring(error)

    def _tell(self) -> None:
        told: Mapping[str, int] | None = None
        while not self._closing.is_set():
            woken = self._new.wait(_COUNT_S)
            self._new.clear()
            now = self._workers()
            if woken or now != told:
                self._write(orjson.dumps(now) + b"\n")
                told = now
                time.sleep(_TELL_S)
        self._write(_END)

    def _write(self, line: bytes) -> None:
        """To one that is gone nothing needs to be told: `_hear` sees to it."""
        with self._writing, suppress(BrokenPipeError):
            if self._process is not None:
                _whole(self._process.stdin, line)

    def _hear(self) -> None:
        unproven = 0
        while not self._closing.is_set():
            process = self._begin()
            fault = self._listen(process)
            code = self._over(process)
            if self._closing.is_set():
                return
            unproven = unproven + 1 if self._led_s is None or time.monotonic() - self._led_s < _LEAST_S else 0
            if fault is None and (not self.led or unproven >= _TRIES):
                fault = SchedulerEnded(reason=f"with exit code {code}, soon after its start")
            if fault is not None:
                self._alarm.ring(fault)
                return
            log.warning("scheduler_replaced", exit_code=code)
            self._closing.wait(_REST_S * unproven)

    def _begin(self) -> subprocess.Popen[bytes]:
        core = next_one()
        self._led_s = None
        with self._writing, all_cores():
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workers.apart", *([] if core is None else [str(core)])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=with_package(os.environ),
                process_group=0,  # the terminal's Ctrl-C is not for it
            )
            with suppress(BrokenPipeError):
                _whole(process.stdin, self._settings + b"\n" + (_END if self._closing.is_set() else b""))
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
            if "failed" in said:
                return _error_of(**said)
            self.target = said["figures"]
            self._led_s, self.led = time.monotonic(), True
        return None


def _whole(out: IO[bytes] | None, data: bytes) -> None:
    assert out is not None
    while data:
        data = data[out.write(data) :]


def _error_of(failed: str, code: str, data: Mapping[str, Any]) -> NightmillError:
    """As it was raised there, so that it says and means the same here. failed: in words."""
    known = {kind.code: kind for kind in _kinds(NightmillError)}
    return known[code](**data) if code in known else SchedulerEnded(reason=failed)


def _kinds(kind: type[NightmillError]) -> Iterator[type[NightmillError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


# ---- the process itself -------------------------------------------------------------------------


class _Last(Alarm):
    """A fault ends the process; the one above hears of it."""

    def __init__(self, out: IO[bytes]) -> None:
        super().__init__()
        self._out = out

    def ring(self, error: BaseException) -> None:
        try:
            code, data = (error.code, error.data) if isinstance(error, NightmillError) else ("", {})
            said = {"failed": repr(error), "code": code, "data": data}
            _whole(self._out, orjson.dumps(said, default=str) + b"\n")
            log.critical("process_ends", error=repr(error), exc_info=error)
        finally:
            os._exit(_FAULT_EXIT)


class _Told:
    """What stdin said last. wake: is called for each line."""

    def __init__(self, lines: IO[bytes]) -> None:
        self.workers: Mapping[str, int] = {}
        self.wake: Callable[[], None] = lambda: None
        self.end = threading.Event()
        self._lines = lines

    def read(self) -> None:
        """To its end, also while what is under way ends."""
        for line in self._lines:
            workers = orjson.loads(line)
            if workers is None:
                self.end.set()
            else:
                self.workers = workers
                self.wake()
        os._exit(0)


class _Process:
    """What there is once the backends answer."""

    def __init__(self, home: Home, told: _Told, alarm: Alarm) -> None:
        self._home = home
        self._told = told
        self._alarm = alarm
        self._scheduling: Scheduling | None = None
        self.shown: Shown | None = None

    def start(self) -> None:
        """Raises Unavailable: then again."""
        home, told = self._home, self._told
        scheduling = Scheduling(home, home.settings.pools, self._alarm, workers=lambda: told.workers)
        sources = scheduling.sources()
        scheduling.start()
        self._scheduling = scheduling
        self.shown = show(home, {"role": "scheduler"}, sources)
        told.wake = scheduling.wake

    def close(self) -> None:
        if self._scheduling is not None:
            self._scheduling.close()
        if self.shown is not None:
            self.shown.close()
        self._home.close()


def main() -> None:
    """Until it is told to end. Its argument, if it has one, is the core to keep to."""
    if sys.argv[1:]:
        keep_to_one(int(sys.argv[1]))
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing else may be said there
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the process above decides; a handler, since children would ignore too
    alarm = _Last(out)
    structlog.contextvars.bind_contextvars(role="scheduler")
    if not (settings := sys.stdin.buffer.readline()):
        return
    try:
        told = _Told(sys.stdin.buffer)
        process = _Process(open_home(from_json(settings)), told, alarm)
        named_thread("told", told.read).start()
        while not (process.shown or told.end.is_set()):
            steady(process.start)()
        if process.shown is not None:
            out.write(orjson.dumps({"figures": process.shown.target}) + b"\n")
        settle_heap()
        told.end.wait()
        process.close()
    except Exception as error:  # noqa: BLE001 - the process's edge
        alarm.ring(error)
    os._exit(0)  # a thread still reads stdin, which Python would wait for


if __name__ == "__main__":
    main()
