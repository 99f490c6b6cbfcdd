"""uvicorn's HTTP/1.1 with a bound on how long a client may take for the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def patient(head_s: float) -> type[H11Protocol]:
    """head_s: from a connection's start, or from the first byte of a later request, to the end of its headers."""

    class PatientProtocol(H11Protocol):
        """uvicorn itself bounds only the pause between two requests."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
            super().connection_made(transport)
            self._head_timer = self.loop.call_later(head_s, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(head_s, self.transport.close)

        def _stop_waiting(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return PatientProtocol
