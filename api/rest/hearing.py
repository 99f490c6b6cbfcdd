"""From a worker's thread to the event loop: what is said of one request, that its client left, that its time is up."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from enum import Enum

from starlette.types import Receive

from jobs.ports.limiting import Hold
from jobs.requests import End, Ended, Piece, Said


class Break(Enum):
    """Why nothing more is waited for."""

    GONE = "the client left"
    LATE = "its time is up"


class Hearing:
    """Made in the event loop. `hear` may be called from any thread; the share of the caller's limits that the request
    holds is settled there, whether anybody still listens or not.

    input_tokens: estimated. They count towards its rate where it was taken in and pays nothing, since its client left
    before the first token or one of its inputs was in error: it kept an engine busy all the same.
    output_tokens, chars: generated so far, as the pieces say. broken: set where no end will be waited for.
    """

    def __init__(self, hold: Hold, input_tokens: int = 0) -> None:
        self._hold = hold
        self._input_tokens = input_tokens
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._said: deque[Said] = deque()
        self._event = asyncio.Event()
        self._waking = False
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.Task[None] | None = None
        self.output_tokens = 0
        self.chars = 0
        self.ended: Ended | None = None
        self.broken: Break | None = None

    def hear(self, said: Said) -> None:
        """See `jobs.ports.live.Hear`."""
        if isinstance(said, Ended):
            self._settle(said)
        self._said.append(said)
        if threading.get_ident() == self._thread:
            self._event.set()
        elif not self._waking:  # one wake for all that comes until the loop has its turn
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop has ended, and whoever listened with it
                return

    def _settle(self, ended: Ended) -> None:
        if ended.end in {End.REFUSED, End.LOST}:
            self._hold.release()
        else:
            usage = ended.usage
            self._hold.settle(usage.input_tokens + usage.cached_tokens + usage.output_tokens or self._input_tokens)

    def _wake(self) -> None:
        self._waking = False
        self._event.set()

    def watch(self, receive: Receive, seconds: float) -> None:
        """Notice when the client leaves, and when the time is up. The request's body has been read."""
        self._timer = self._loop.call_later(seconds, self._break, Break.LATE)
        self._watch = self._loop.create_task(self._until_gone(receive))

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._break(Break.GONE)

    def _break(self, why: Break) -> None:
        if self.broken is None:
            self.broken = why
        self._event.set()

    async def pieces(self) -> list[Piece]:
        """All that came since the last call, at least something; with the last of it `ended` is set. Empty where it is
        broken, or ended without a piece.
        """
        while not self._said and self.broken is None:
            self._event.clear()
            await self._event.wait()
        found: list[Piece] = []
        while self._said:
            said = self._said.popleft()
            if isinstance(said, Ended):
                self.ended = said
            else:
                found.append(said)
                self.output_tokens += said.output_tokens
                self.chars += len(said.text)
        return found

    async def end(self) -> None:
        """Until it has ended, or is broken."""
        while self.ended is None and self.broken is None:
            await self.pieces()

    def close(self) -> bool:
        """Nobody listens any more. Whether the request may still be under way."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        return self.ended is None
