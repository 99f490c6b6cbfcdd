"""The way out of the engine's process: results and pieces gathered into frames, and a sign of life every second."""

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
from infra.engines.gathering import Gathering
from jobs.ports.engine import EnginePiece, EngineResult, Occupancy

PROGRESS_S = 1.0
"""How often the token counter is sent; a shorter hang time-out makes it a quarter of that."""


class Outbox:
    """Sends frames from any thread; results and pieces are collected and written by a thread of its own."""

    def __init__(self, sock: socket.socket, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sock = sock
        self._clock = clock
        self._send_lock = threading.Lock()
        self._gathering = Gathering()
        self._turn = threading.Condition(threading.Lock())
        self._sleeps_until = float("-inf")

    def start(self, moved: Callable[[], int], occupancy: Callable[[], Occupancy], hang_timeout_s: float) -> None:
        """Begin to write results and progress; `moved` reads the token counter, `occupancy` what is inside."""
        period_s = min(PROGRESS_S, hang_timeout_s / 4)
        threading.Thread(target=self._write, args=(moved, occupancy, period_s), name="writer", daemon=True).start()

    def deliver(self, results: Sequence[EngineResult]) -> None:
        """Queue finished rows."""
        with self._turn:
            self._gathering.add_results(results, self._clock())
            self._rouse()

    def tell(self, pieces: Sequence[EnginePiece]) -> None:
        """Queue pieces of rows that are not yet queued themselves."""
        with self._turn:
            self._gathering.add_pieces(pieces, self._clock())
            self._rouse()

    def send(self, head: dict[str, Any], tail: bytes = b"") -> None:
        """Write one frame. A caller that is gone is the reader thread's business, so it is no error here."""
        self._send(encode_frame(head, tail))

    def flush(self, moved: int) -> None:
        """Write what waits, due or not."""
        with self._turn:
            pieces, results = self._gathering.take(self._clock())
        frames = [_pieces_frame(pieces, moved)] if pieces else []
        frames += [_results_frame(results, moved)] if results else []
        if frames:
            self._send(b"".join(frames))

    def _write(self, moved: Callable[[], int], occupancy: Callable[[], Occupancy], period_s: float) -> None:
        next_progress = self._clock() + period_s
        while True:
            self._wait(next_progress)
            self.flush(moved())
            if self._clock() >= next_progress:
                self.send(wire.progress_to_wire(moved(), occupancy()))
                next_progress = self._clock() + period_s

    def _rouse(self) -> None:
        """The writer, if it would sleep for too long."""
        due = self._gathering.due
        if due is not None and due < self._sleeps_until:
            self._turn.notify()

    def _wait(self, until: float) -> None:
        """Until what waits is due, but no longer than `until`. While rows are told of it wakes by itself when the next
        pieces may go, so that nobody has to wake it for them.
        """
        with self._turn:
            while True:
                now, due, later = self._clock(), self._gathering.due, self._gathering.later
                if until <= now or (due is not None and due <= now):
                    break
                if due is None and later > now:
                    due = later
                self._sleeps_until = until if due is None else min(due, until)
                self._turn.wait(self._sleeps_until - now)
            self._sleeps_until = float("-inf")

    def _send(self, frame: bytes) -> None:
        with self._send_lock:
            try:
                self._sock.sendall(frame)
            except (BrokenPipeError, ConnectionResetError):
                return


def _pieces_frame(pieces: Sequence[EnginePiece], moved: int) -> bytes:
    try:
        return encode_frame(wire.pieces_to_wire(pieces, moved))
    except orjson.JSONEncodeError:
        printable = [replace(piece, text=wire.without_surrogates(piece.text)) for piece in pieces]
        return encode_frame(wire.pieces_to_wire(printable, moved))


def _results_frame(results: Sequence[EngineResult], moved: int) -> bytes:
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
