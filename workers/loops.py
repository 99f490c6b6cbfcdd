"""Threads that repeat a step until they are told to stop, and report what ended them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from jobs.errors import Unavailable
from workers.about import named_thread

log = structlog.get_logger()

_AWAY_S = 1.0
_REST = 9.0
"""Seconds for each second of a core that a step took."""


@dataclass(slots=True)
class Alarm:
    """The first failure of any loop; everyone else stops because of it."""

    error: BaseException | None = None
    _rang: threading.Event = field(default_factory=threading.Event)

    def ring(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        self._rang.set()

    @property
    def rang(self) -> bool:
        return self._rang.is_set()

    def wait(self, timeout_s: float) -> bool:
        return self._rang.wait(timeout_s)


class Loop:
    """One thread. `every_s`: pause between steps; `wake` ends the pause early, but not before the steps' share of a
    core is down to a tenth: what wakes it may come hundreds of times a second, and a step deals with all of it.
    """

    def __init__(self, name: str, step: Callable[[], object], alarm: Alarm, every_s: float = 0.0) -> None:
        self._step = step
        self._alarm = alarm
        self._every_s = every_s
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = named_thread(name, self._run)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout_s: float | None = 10.0) -> bool:
        """Ask it to end after its step and wait; whether it ended in time."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began_s = time.thread_time()
                self._step()
                if self._every_s:
                    rest_s = min(self._every_s, _REST * (time.thread_time() - began_s))
                    self._stop.wait(rest_s)
                    self._wake.wait(self._every_s - rest_s)
                    self._wake.clear()
        except BaseException as error:  # the loop edge: whatever ended it is shown by the main thread
            log.error("loop_ended", loop=self._thread.name, error=repr(error), exc_info=error)
            self._alarm.ring(error)


def steady(step: Callable[[], object]) -> Callable[[], None]:
    """A step that waits for a backend that is away instead of failing."""

    def guarded() -> None:
        try:
            step()
        except Unavailable as error:
            log.warning("backend_away", reason=error.sentence)
            time.sleep(_AWAY_S)

    return guarded
