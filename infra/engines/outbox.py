"""The way out of the engine's process: results gathered into frames, and a sign of life every second."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from infra.engines import wire
from infra.engines.frames import encode_frame
from jobs.ports.engine import EngineResult, Occupancy

PROGRESS_S = 1.0
"""How often the token counter is sent; a shorter hang time-out makes it a quarter of that."""
GATHER_S = 0.002
"""Results that finish within this time of each other share a frame; small against any row's latency."""


class Outbox:
    """Sends frames from any thread; results are collected and written by a thread of its own."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._send_lock = threading.Lock()
        self._waiting: list[EngineResult] = []
        self._waiting_lock = threading.Lock()
        self._wake = threading.Event()

    def start(self, moved: Callable[[], int], occupancy: Callable[[], Occupancy], hang_timeout_s: float) -> None:
        """Begin to write results and progress; `moved` reads the token counter, `occupancy` what is inside."""
        period_s = min(PROGRESS_S, hang_timeout_s / 4)
        threading.Thread(target=self._write, args=(moved, occupancy, period_s), name="writer", daemon=True).start()

    def deliver(self, results: Sequence[EngineResult]) -> None:
        """Queue finished rows."""
        with self._waiting_lock:
            self._waiting.extend(results)
        self._wake.set()

    def send(self, head: dict[str, Any], tail: bytes = b"") -> None:
        """Write one frame. A caller that is gone is the reader thread's business, so it is no error here."""
        self._send(encode_frame(head, tail))

    def _write(self, moved: Callable[[], int], occupancy: Callable[[], Occupancy], period_s: float) -> None:
        next_progress = time.monotonic() + period_s
        while True:
            if self._wake.wait(max(0.0, next_progress - time.monotonic())):
                time.sleep(GATHER_S)
            self._wake.clear()
            with self._waiting_lock:
                results, self._waiting = self._waiting, []
            if results:
                self._send(_encode(results, moved()))
            if time.monotonic() >= next_progress:
                self.send(wire.progress_to_wire(moved(), occupancy()))
                next_progress = time.monotonic() + period_s

    def _send(self, frame: bytes) -> None:
        with self._send_lock:
            try:
                self._sock.sendall(frame)
            except (BrokenPipeError, ConnectionResetError):
                return


def _encode(results: Sequence[EngineResult], moved: int) -> bytes:
    try:
        return encode_frame(*wire.results_to_wire(results, moved))
    except orjson.JSONEncodeError:
        return encode_frame(*wire.results_to_wire([_printable(r) for r in results], moved))


def _printable(result: EngineResult) -> EngineResult:
    return replace(
        result,
        text=wire.without_surrogates(result.text),
        error_message=wire.without_surrogates(result.error_message or ""),
    )
