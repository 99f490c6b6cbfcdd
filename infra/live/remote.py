"""A worker's door seen from another process: one connection, kept up; what it breaks off is told as lost."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from dataclasses import dataclass
from functools import partial
from itertools import count

import orjson
import structlog

from infra.engines.frames import Frame, encode_frame
from infra.live import wire
from infra.live.channel import Channel
from jobs.ports.engine import EngineResult
from jobs.ports.live import Hear
from jobs.requests import End, Ended, LiveRequest, Load, Said
from jobs.retry import Backoff

log = structlog.get_logger()

CONNECT_S = 3.0
SILENT_S = 10.0
"""A server tells its load more often than that."""
_AGAIN = Backoff(first_s=0.05, max_s=2.0, attempts=1 << 30)


@dataclass(frozen=True, slots=True)
class _Asked:
    request_id: str
    hear: Hear


class RemoteDoor:
    """`jobs.ports.live.Door`. From its making until `close`; while it is not connected it refuses.

    loop: what comes is told in its thread, where those who asked wait for it anyway; without one, in a thread of ours.
    """

    def __init__(self, name: str, address: str, secret: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._name = name
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._secret = secret
        self._loop = loop
        self._channel: Channel[bytes] | None = None
        self._asked: dict[int, _Asked] = {}
        self._numbers: dict[str, int] = {}
        self._next = count(1)
        self._load = Load()
        self._fresh_seats = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._keep, name=f"door-{name}", daemon=True).start()

    @property
    def name(self) -> str:
        return self._name

    def enter(self, request: LiveRequest, hear: Hear) -> None:
        """See the port."""
        number = next(self._next)
        try:
            frame = wire.enter_to_wire(number, request)
        except orjson.JSONEncodeError:
            hear(_unreadable())
            return
        with self._lock:
            channel = self._channel
            if channel is not None:
                self._asked[number] = _Asked(request.id, hear)
                self._numbers[request.id] = number
                self._fresh_seats += request.seats
                channel.hurry(frame)
        if channel is None:
            hear(Ended(end=End.REFUSED, retry_after_s=1.0, reason=f"worker {self._name} is not connected"))

    def leave(self, request_id: str) -> None:
        """See the port."""
        with self._lock:
            number, channel = self._numbers.get(request_id), self._channel
        if number is not None and channel is not None:
            channel.put(encode_frame({"op": "leave", "n": number}))

    def load(self) -> Load:
        """As last told, and what went there since."""
        with self._lock:
            load, fresh = self._load, self._fresh_seats
        return load.evolve(used=min(load.seats, load.used + fresh)) if fresh else load

    def close(self) -> None:
        """Let go; what is inside is told as lost."""
        self._closed.set()
        with self._lock:
            channel = self._channel
        if channel is not None:
            channel.close()

    # ---- the thread that keeps it up ----------------------------------------------------------------

    def _keep(self) -> None:
        attempt = 0
        while not self._closed.is_set():
            attempt = 0 if self._once() else attempt + 1
            pause_s = _AGAIN.wait_s(max(1, min(attempt, 16))) or 0.0
            self._closed.wait(pause_s * random.uniform(0.5, 1.0))

    def _once(self) -> bool:
        """A connection, from its beginning to its end; whether it was one."""
        try:
            sock = socket.create_connection(self._address, timeout=CONNECT_S)
        except OSError:
            return False
        sock.settimeout(SILENT_S)
        try:
            channel: Channel[bytes] = Channel(sock, b"".join, f"door-writer-{self._name}")
        except (OSError, RuntimeError) as error:  # it is gone already, or there is no thread to be had for it
            log.warning("door_not_opened", worker=self._name, reason=str(error))
            sock.close()
            return False
        channel.put(wire.hello_to_wire(self._secret))
        try:
            if self._loop is not None:
                channel.hear(self._loop, partial(self._take_all, channel), wire.MAX_FRAME_BYTES, SILENT_S)
            else:
                for frames in channel.frames(lambda: wire.MAX_FRAME_BYTES):
                    self._take_all(channel, frames)
        except Exception:  # the thread's edge: whatever it was, those who wait must be told
            log.exception("door_failed", worker=self._name)
        finally:
            channel.free()
            was_open = self._break_off()
        return was_open

    def _take_all(self, channel: Channel[bytes], frames: list[Frame]) -> None:
        for frame in frames:
            self._take(channel, frame)

    def _take(self, channel: Channel[bytes], frame: Frame) -> None:
        head = frame[0]
        match head["op"]:
            case "load":
                with self._lock:
                    self._load, self._fresh_seats = wire.load_from_wire(head), 0
            case "hello":
                with self._lock:
                    closed = self._closed.is_set()
                    if not closed:
                        self._channel = channel
                if closed:  # it was let go before this was one
                    channel.close()
            case _:
                for number, said in wire.said_from_wire(frame):
                    self._tell(number, said)

    def _tell(self, number: int, said: Said) -> None:
        asked = self._forget(number) if isinstance(said, Ended) else self._asked.get(number)
        if asked is not None:
            _tell(asked.hear, said)

    def _forget(self, number: int) -> _Asked | None:
        with self._lock:
            asked = self._asked.pop(number, None)
            if asked is not None and self._numbers.get(asked.request_id) == number:
                del self._numbers[asked.request_id]
        return asked

    def _break_off(self) -> bool:
        """Whether it was open."""
        with self._lock:
            was_open, self._channel = self._channel is not None, None
            left, self._asked, self._numbers = [*self._asked.values()], {}, {}
            self._load, self._fresh_seats = Load(), 0
        for asked in left:
            _tell(asked.hear, Ended(end=End.LOST, reason=f"the connection to worker {self._name} broke"))
        return was_open


def _tell(hear: Hear, said: Said) -> None:
    try:
        hear(said)
    except Exception:  # the edge to whoever asked: the others go on
        log.exception("listener_failed")


def _unreadable() -> Ended:
    """As an engine would say it."""
    message = "the prompt is not valid Unicode text"
    result = EngineResult(0, "error", error_code="invalid_request", error_message=message)
    return Ended(end=End.DONE, result=result)
