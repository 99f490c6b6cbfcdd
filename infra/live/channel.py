"""One end of a connection: frames in by the caller's thread or in an event loop, words out by a thread of their own,
many at once; a word that somebody waits for goes out by the thread that says it.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from infra.engines.frames import Frame, FrameReader

T = TypeVar("T")
SEND_S = 20.0
"""An end that takes nothing for so long is gone."""
_READ_BYTES = 1 << 18
_LOOK_S = 0.5
"""Of a connection that may be silent because the loop is kept."""


class Channel(Generic[T]):
    """`put` and `hurry` from any thread, and neither waits; `close` too. encode: the words that waited, as bytes.

    Whoever reads, by `frames` or `hear`, frees the socket at the end with `free`.
    """

    def __init__(self, sock: socket.socket, encode: Callable[[list[T]], bytes], name: str) -> None:
        lively(sock)
        self._sock = sock
        self._encode = encode
        self._waiting: list[T] = []
        self._turn = threading.Condition()
        self._rest = b""
        self._writing = False
        self._closed = False
        self._reader = FrameReader()
        threading.Thread(target=self._write, name=name, daemon=True).start()

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, word: T) -> None:
        """It goes out soon, or nowhere if the connection is closed."""
        with self._turn:
            if not self._closed:
                self._waiting.append(word)
                self._turn.notify()

    def hurry(self, word: T) -> None:
        """As `put`. Where nothing is before it the caller's thread hands it to the system, as far as that takes it: no
        other has to wake for it.
        """
        with self._turn:
            if self._closed:
                return
            if self._waiting or self._rest or self._writing:
                self._waiting.append(word)
            else:
                try:
                    self._rest = self._sent(self._encode([word]))
                except (OSError, TypeError, ValueError):
                    self.close()
                    return
            if self._waiting or self._rest:
                self._turn.notify()

    def _sent(self, data: bytes) -> bytes:
        """What the system did not take."""
        try:
            if self._sock.gettimeout() is None:
                return data[self._sock.send(data, socket.MSG_DONTWAIT) :]
            return data[os.write(self._sock.fileno(), data) :]  # `send` would wait for as long as its time-out
        except BlockingIOError:
            return data

    def frames(self, max_bytes: Callable[[], int]) -> Iterator[list[Frame]]:
        """What comes, until the connection ends. Raises ValueError for what is no frame, or a longer one than that."""
        while not self._closed:
            try:
                data = self._sock.recv(_READ_BYTES)
            except OSError:
                return
            if not data:
                return
            self._reader.max_bytes = max_bytes()
            if frames := self._reader.feed(data):
                yield frames

    def hear(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[list[Frame]], None], max_bytes: int, silent_s: float
    ) -> None:
        """Until the connection ends, or is silent for so long. What comes is taken in the loop's thread; ours waits.

        Raises ValueError for what is no frame, whatever `take` raises, and RuntimeError where the loop has ended.
        """
        self._reader.max_bytes = max_bytes
        fd, over = self._sock.fileno(), threading.Event()
        heard_s, faults = [time.monotonic()], list[Exception]()

        def begin() -> None:
            try:
                loop.add_reader(fd, read)
            except Exception as fault:  # noqa: BLE001 - raised by the thread that waits
                faults.append(fault)
                over.set()

        def read() -> None:
            heard_s[0] = time.monotonic()
            try:
                if data := os.read(fd, _READ_BYTES):  # `recv` would wait for as long as its time-out
                    if frames := self._reader.feed(data):
                        take(frames)
                    return
            except BlockingIOError:
                return
            except Exception as fault:  # noqa: BLE001 - raised by the thread that waits
                faults.append(fault)
            end()

        def end() -> None:
            if not over.is_set():
                loop.remove_reader(fd)
                over.set()

        loop.call_soon_threadsafe(begin)
        while not over.wait(max(_LOOK_S, heard_s[0] + silent_s - time.monotonic())):
            if loop.is_closed():
                raise RuntimeError("the event loop has ended")
            silent = time.monotonic() - heard_s[0] >= silent_s
            if silent and not _readable(self._sock):  # else it is the loop that was kept
                loop.call_soon_threadsafe(end)
                over.wait()
        if faults and not isinstance(faults[0], OSError):
            raise faults[0]

    def close(self) -> None:
        """Idempotent; whoever reads from it comes to its end."""
        with self._turn:
            if self._closed:
                return
            self._closed = True
            self._waiting.clear()
            self._turn.notify()
        with suppress(OSError):  # the other end was faster
            self._sock.shutdown(socket.SHUT_RDWR)

    def free(self) -> None:
        """Close it and give the socket back: nobody reads from it any more."""
        self.close()
        self._sock.close()

    def _write(self) -> None:
        while True:
            with self._turn:
                self._writing = False
                while not self._waiting and not self._rest and not self._closed:
                    self._turn.wait()
                if self._closed:
                    return
                (words, self._waiting), (rest, self._rest) = (self._waiting, []), (self._rest, b"")
                self._writing = True
            try:
                self._sock.sendall(rest + self._encode(words))
            except (OSError, TypeError, ValueError):  # gone, or with words that are no text
                self.close()
                return


def _readable(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def lively(sock: socket.socket) -> None:
    """Small frames go out at once; a machine that is gone without a word is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if (option := getattr(socket, name, None)) is not None:  # not every system has them
            sock.setsockopt(socket.IPPROTO_TCP, option, seconds)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SEND_S), 0))
    if (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
        sock.setsockopt(socket.IPPROTO_TCP, option, int(SEND_S * 1000))
