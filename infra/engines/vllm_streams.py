"""Answers that are told of on their way: looked at once after each of vLLM's steps.

vLLM's generators wake a task for every token of every request. Here a task waits for its answer's end, and one look
takes from all of them what the step brought.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from infra.engines.answers import Generated
from infra.engines.backend import Tell
from infra.engines.vllm_outputs import Deltas
from jobs.ports.engine import EnginePiece


@dataclass(slots=True, eq=False)
class _Stream:
    """outputs: vLLM's `RequestOutputCollector`, which keeps what came until it is taken."""

    outputs: Any
    deltas: Deltas
    over: asyncio.Future[None]

    def take(self) -> EnginePiece | None:
        """What came of it. Whatever goes wrong is this answer's alone."""
        try:
            output = self.outputs.get_nowait()
            if output is None:
                return None
            piece = self.deltas.add(output)
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer raises it
            if not self.over.done():
                self.over.set_exception(error)
            return None
        if output.finished and not self.over.done():
            self.over.set_result(None)
        return piece


class Streams:
    """All of it in the engine's loop."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._open: dict[_Stream, None] = {}

    async def whole(self, outputs: Any, deltas: Deltas) -> Generated:
        """An answer, told of until its end. Raises what vLLM made of it; the engine's death is for others to notice."""
        stream = _Stream(outputs, deltas, asyncio.get_running_loop().create_future())
        self._open[stream] = None
        try:
            self.look()  # it may have ended before it was here
            await stream.over
        finally:
            del self._open[stream]
        return deltas.whole()

    def look(self) -> None:
        """A step is done."""
        pieces = [piece for stream in self._open if (piece := stream.take()) is not None]
        if pieces:
            self._tell(pieces)
