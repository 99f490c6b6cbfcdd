"""What the fake engine has generated of a row at a time: pieces token by token, and the row as an abort leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from infra.engines.fake_text import CHARS_PER_TOKEN, tokens_of
from jobs.ports.engine import EnginePiece, EngineResult, Place


@dataclass(slots=True, kw_only=True)
class Stream:
    """A running row whose result is known. Its answers grow side by side, by a token of each at every step.

    answers: (text, places) of each. The first step is done at `first_s`, the last when the row is. told: steps that
    were told of.
    """

    result: EngineResult
    answers: Sequence[tuple[str, Sequence[Place] | None]]
    steps: int
    first_s: float
    step_s: float
    told: int = 0

    @property
    def next_s(self) -> float | None:
        """When there is something to tell; None when all was told."""
        return self.first_s + self.told * self.step_s if self.told < self.steps else None

    def done(self, now: float) -> int:
        """Steps that were done by now."""
        steps = self.told
        while steps < self.steps and self.first_s + steps * self.step_s <= now:
            steps += 1
        return steps

    def tell(self, steps: int) -> list[EnginePiece]:
        """Up to so many steps, without what was told; a piece of each answer for each step."""
        told, self.told = self.told, max(self.told, steps)
        return [
            EnginePiece(self.result.id, choice, _token(text, step), 1, places and places[step : step + 1])
            for step in range(told, steps)
            for choice, (text, places) in enumerate(self.answers)
            if step < tokens_of(text)
        ]

    def cut_short(self, steps: int) -> EngineResult:
        """The row as it is when it is aborted after so many steps."""
        row, answers = self.result, None
        if not steps:
            return EngineResult(row.id, "abort")
        if row.answers is not None:
            answers = orjson.dumps([_cut(text, places, steps) for text, places in self.answers]).decode()
        text = self.answers[0][0][: steps * CHARS_PER_TOKEN]
        output_tokens = sum([min(steps, tokens_of(text)) for text, _ in self.answers])
        return replace(row, finish_reason="abort", text=text, output_tokens=output_tokens, answers=answers)


def stream_of(result: EngineResult, end_s: float, token_s: float) -> Stream:
    """end_s: when the row is done. token_s: of each of its tokens, of all answers together."""
    answers: list[tuple[str, Sequence[Place] | None]] = [(result.text, None)]
    if result.answers is not None and result.embedding is None:
        answers = [(entry["text"] or "", entry.get("tokens")) for entry in orjson.loads(result.answers)]
    steps = max([tokens_of(text) for text, _ in answers]) if result.output_tokens else 0
    step_s = token_s * result.output_tokens / max(1, steps)
    first_s = end_s - max(0, steps - 1) * step_s
    return Stream(result=result, answers=answers, steps=steps, first_s=first_s, step_s=step_s)


def _token(text: str, step: int) -> str:
    return text[step * CHARS_PER_TOKEN : (step + 1) * CHARS_PER_TOKEN]


def _cut(text: str, places: Sequence[Place] | None, steps: int) -> dict[str, Any]:
    kept = {"text": text[: steps * CHARS_PER_TOKEN], "finish_reason": "abort"}
    return kept if places is None else {**kept, "tokens": places[:steps]}
