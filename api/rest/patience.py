"""uvicorn's HTTP/1.1 with bounds: how long a client may take for the head of a request, how much of one is kept, and
how many requests wait behind the one that is answered.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_MOST_WAITING = 16
_UPGRADE = frozenset({b"upgrade", b"connection", b"http2-settings"})


class _At(Enum):
    """What a client sends now. TRAILER: after a chunk's head, which the next chunk's bytes or trailers follow."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    TRAILER = auto()


class _Patient(HttpToolsProtocol):
    """uvicorn itself bounds only the pause between two requests.

    head_s: from a connection's start, or from the first byte of a later request, to the end of its headers.
    head_bytes: kept at most of a head, or of trailers, that do not end; what comes at once may be more.
    """

    head_s: ClassVar[float]
    head_bytes: ClassVar[int]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._at = _At.NOTHING
        self._begun = 0  # heads, and heads of chunks
        self._kept = 0
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_s, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._running is not None and not self._running.response_complete:  # uvicorn tells the newest one only
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        begun, left = self._begun, data
        self._unset_keepalive_if_required()
        try:
            while left:
                left = self._fed(left)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._at in {_At.HEAD, _At.TRAILER} and self._begun == begun:  # else it was something else, mostly
            self._kept += len(data)
            if self._kept > self.head_bytes:
                self.send_400_response("The headers do not end.")
        else:
            self._kept = 0
        if self._asked():  # the app has bounds of its own
            self._stop_waiting()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_s, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        if self._asked():  # not into the middle of another answer
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    # ---- what the parser calls ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._at = _At.HEAD
        self._begun += 1
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._at is _At.HEAD:  # trailers change nothing of a request that was admitted
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("there is no CONNECT")
            return  # it is read again
        if len(self.pipeline) >= _MOST_WAITING:
            raise ValueError("too many requests at once")
        if self.parser.get_http_version() == "1.1" and sum(name == b"host" for name, _ in self.headers) != 1:
            raise ValueError("one Host is needed")
        self._at = _At.BODY
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """httptools calls it before the bytes of each chunk; the last one has none."""
        self._at = _At.TRAILER
        self._begun += 1

    def on_body(self, body: bytes) -> None:
        self._at = _At.BODY
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._at is _At.HEAD:  # it is read again
            return
        self._at = _At.NOTHING
        super().on_message_complete()

    # ---- inside -------------------------------------------------------------------------------

    def _fed(self, data: bytes) -> bytes:
        """What is still to be read. The parser takes whatever follows a wish to upgrade for another protocol; here
        nobody is upgraded, so the request is read again without the wish.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            return self._without_wish() + data[wish.args[0] :]
        return b""

    def _without_wish(self) -> bytes:
        """The head of the request; and a parser that has not read it."""
        kept = [(name, value) for name, value in self.headers if name not in _UPGRADE]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            kept.append((b"connection", b"close"))
        first = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        return first + b"".join(b"%b: %b\r\n" % header for header in kept) + b"\r\n"

    def _asked(self) -> bool:
        """Whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # none before the first one
        return cycle is not None and not cycle.response_complete

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def patient(head_s: float, head_bytes: int) -> type[HttpToolsProtocol]:
    """The protocol with these bounds; uvicorn makes one a connection."""
    return type("Patient", (_Patient,), {"head_s": head_s, "head_bytes": head_bytes})
