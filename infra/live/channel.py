"""One end of a connection: frames in by the caller's thread, words out by a thread of its own, many at once."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from infra.engines.frames import Frame, FrameReader

T = TypeVar("T")
SEND_S = 20.0
"""An end that takes nothing for so long is gone."""
_READ_BYTES = 1 << 18


class Channel(Generic[T]):
    """`put` from any thread and never waits; `close` too. encode: the words that waited, as bytes."""

    def __init__(self, sock: socket.socket, encode: Callable[[list[T]], bytes], name: str) -> None:
        lively(sock)
        self._sock = sock
        self._encode = encode
        self._waiting: list[T] = []
        self._turn = threading.Condition()
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
        self._sock.close()

    def _write(self) -> None:
        while True:
            with self._turn:
                while not self._waiting and not self._closed:
                    self._turn.wait()
                if self._closed:
                    return
                words, self._waiting = self._waiting, []
            try:
                self._sock.sendall(self._encode(words))
            except (OSError, TypeError, ValueError):  # gone, or with words that are no text
                self.close()
                return


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
