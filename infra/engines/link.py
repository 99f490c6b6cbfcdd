"""The caller's end of the socket to an engine's process, and the bell that ends a wait there from another thread."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from infra.engines.frames import Frame, FrameReader, encode_frame


class Bell:
    """Rung from any thread; heard once, by the next wait if none goes on."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        for end in (self._out, self._in):
            os.set_blocking(end, False)
        weakref.finalize(self, _close, (self._out, self._in))

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of rings that nobody heard yet
            os.write(self._in, b"!")

    def heard(self) -> None:
        """Be silent until it is rung again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._out, 1 << 16)

    def fileno(self) -> int:
        """To wait for."""
        return self._out


class Link:
    """Frames to and from one engine's process; nothing here waits but `wait`. closed: the other end is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._reader = FrameReader()
        self._unsent = bytearray()
        self.closed = False

    @property
    def unsent(self) -> bool:
        """Whether something is still to be written."""
        return bool(self._unsent)

    def fileno(self) -> int:
        """To wait for."""
        return self._sock.fileno()

    def send(self, head: dict[str, Any]) -> None:
        """Raises orjson.JSONEncodeError, and nothing is sent. What the socket does not take goes out by `flush`."""
        self._unsent += encode_frame(head)
        self.flush()

    def flush(self) -> None:
        """Write what the socket takes."""
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.closed = True

    def receive(self) -> Iterator[Frame]:
        """What came."""
        while not self.closed:
            try:
                data = self._sock.recv(1 << 20)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.closed = not data
            yield from self._reader.feed(data)

    def close(self) -> None:
        self._sock.close()


def wait(links: Sequence[Link], bell: Bell, wait_s: float) -> bool:
    """Until there is something to read or, where need be, to write, or the bell rings; whether it did."""
    found = select.poll()  # unlike select.select it knows no highest number, which a server of many may be past
    found.register(bell, select.POLLIN)
    for link in links:
        found.register(link, select.POLLIN | (select.POLLOUT if link.unsent else 0))
    rung = any(fd == bell.fileno() for fd, _ in found.poll(wait_s * 1000))
    if rung:
        bell.heard()
    return rung


def _close(ends: Sequence[int]) -> None:
    for end in ends:
        os.close(end)
