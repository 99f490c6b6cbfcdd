"""uvicorn's HTTP/1.1 with bounds on the head of a request: how long a client may take for it, and how much is kept."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


class _At(Enum):
    """What a client sends now. TRAILER: after a chunk's head, which the next chunk's bytes or trailers follow."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    TRAILER = auto()


def patient(head_s: float, head_bytes: int) -> type[HttpToolsProtocol]:
    """head_s: from a connection's start, or from the first byte of a later request, to the end of its headers.
    head_bytes: kept at most of a head, or of trailers, that do not end; what comes at once may be more.
    """

    class PatientProtocol(HttpToolsProtocol):
        """uvicorn itself bounds only the pause between two requests."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._head_timer: asyncio.TimerHandle | None = None
            self._at = _At.NOTHING
            self._kept = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
            super().connection_made(transport)
            self._head_timer = self.loop.call_later(head_s, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._at in {_At.HEAD, _At.TRAILER}:
                self._kept += len(data)
                if self._kept > head_bytes and not self.transport.is_closing():
                    self.send_400_response("The headers do not end.")
            else:
                self._kept = 0
            if self._at in {_At.BODY, _At.TRAILER} or (self._at is _At.NOTHING and self._asked()):
                self._stop_waiting()
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(head_s, self.transport.close)

        def on_message_begin(self) -> None:
            self._at = _At.HEAD
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._at is _At.HEAD:  # trailers change nothing of a request that was admitted
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._at = _At.BODY
            super().on_headers_complete()

        def on_chunk_header(self) -> None:
            """httptools calls it before the bytes of each chunk; the last one has none."""
            self._at = _At.TRAILER

        def on_body(self, body: bytes) -> None:
            self._at = _At.BODY
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._at = _At.NOTHING
            super().on_message_complete()

        def _asked(self) -> bool:
            """Whether a request is being answered."""
            cycle: RequestResponseCycle | None = self.cycle  # none before the first one
            return cycle is not None and not cycle.response_complete

        def _stop_waiting(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return PatientProtocol
