"""A front in this process that answers as the fake engine does, and ill where the prompt asks for it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from infra.engines.fake_answers import answer_row, flavour_of
from infra.engines.fake_args import FakeArgs
from infra.engines.fake_stream import stream_of
from jobs.model import Usage
from jobs.ports.engine import EngineRequest, EngineResult
from jobs.ports.live import Hear
from jobs.prompts import plain_text
from jobs.requests import End, Ended, LiveRequest, Piece

BUSY, BUSY_ONCE, NOBODY, LOST, STOPPED, ENDLESS = "busy", "busy-once", "nobody", "lost", "stopped", "endless"
WORDS = (BUSY_ONCE, BUSY, NOBODY, LOST, STOPPED, ENDLESS)
"""What a prompt says in brackets: [busy]. The two that begin some pieces end after two of them."""
RETRY_S = 2.5


@dataclass
class SmallFront:
    """asked, left, ended: what was seen, in order."""

    args: FakeArgs = field(default_factory=lambda: FakeArgs(tool_call_parser="any", call_on="weather"))
    asked: list[LiveRequest] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    ended: dict[str, Ended] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def ask(self, request: LiveRequest, hear: Hear) -> None:
        self.asked.append(request)
        threading.Thread(target=self._serve, args=(request, hear), daemon=True).start()

    def leave(self, request_id: str) -> None:
        self.left.append(request_id)

    def serves(self, model: str) -> bool:
        return True

    def _serve(self, request: LiveRequest, hear: Hear) -> None:
        text = plain_text(request.prompt)
        said = next((word for word in WORDS if f"[{word}]" in text), "")
        ended = self._refusal(said, text) or self._generated(request, hear, said, text)
        self.ended[request.id] = ended
        hear(ended)

    def _refusal(self, said: str, text: str) -> Ended | None:
        if said == BUSY or (said == BUSY_ONCE and not self.refused[text]):
            self.refused[text] += 1
            return Ended(end=End.REFUSED, retry_after_s=RETRY_S if said == BUSY else 0.05)
        return Ended(end=End.REFUSED) if said == NOBODY else None

    def _generated(self, request: LiveRequest, hear: Hear, said: str, text: str) -> Ended:
        result = answer_row(EngineRequest(1, request.prompt), text, flavour_of(request.profile), self.args)
        stream = stream_of(result, 0.0, 0.0)
        if said == ENDLESS:
            return self._endless(request, hear)
        pieces = stream.tell(2 if said in {LOST, STOPPED} else stream.steps) if request.profile.stream else []
        for piece in pieces:
            hear(Piece(piece.choice, piece.text, piece.output_tokens, piece.tokens))
        if said in {LOST, STOPPED}:
            return Ended(end=End.LOST if said == LOST else End.ABORTED, usage=Usage(output_tokens=2))
        return Ended(end=End.DONE, result=result, usage=usage_of(result))

    def _endless(self, request: LiveRequest, hear: Hear) -> Ended:
        told = 0
        while request.id not in self.left:
            told += 1
            if request.profile.stream:
                hear(Piece(0, "word ", 1))
            time.sleep(0.01)
        return Ended(end=End.ABORTED, usage=Usage(output_tokens=told))


def usage_of(result: EngineResult) -> Usage:
    """What is charged."""
    return Usage(
        rows=1,
        input_tokens=result.input_tokens - result.cached_tokens,
        cached_tokens=result.cached_tokens,
        output_tokens=result.output_tokens,
    )
