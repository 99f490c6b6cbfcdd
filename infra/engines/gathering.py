"""What waits to leave the engine's process, and when it goes: pure, on the time that it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.ports.engine import EnginePiece, EngineResult, Place

GATHER_S = 0.002
"""Results that finish within this time of each other share a frame; small against any row's latency."""
STEP_S = 0.001
"""Pieces come in a burst, of all rows that the engine's step moved, and so do the ends of those that are told of, for
which somebody waits; they share a frame.
"""
COALESCE_S = 0.025
"""The longest that a piece waits. Each costs its way to its reader: with many readers fewer and larger ones go."""
PER_ROW_S = 0.004
"""How much of it for each row that is told of: one alone hears of nearly every token."""


@dataclass(slots=True)
class Growing:
    """Pieces of one answer that become one."""

    text: list[str] = field(default_factory=list)
    output_tokens: int = 0
    tokens: list[Place] | None = None

    def add(self, piece: EnginePiece) -> None:
        self.text.append(piece.text)
        self.output_tokens += piece.output_tokens
        if piece.tokens is not None:
            self.tokens = [*(self.tokens or ()), *piece.tokens]


class Gathering:
    """Rows' first pieces go at once, later ones after a while, and with any result: never after their row's."""

    def __init__(self) -> None:
        self._results: list[EngineResult] = []
        self._pieces: dict[tuple[int, int], Growing] = {}
        self._heard: set[int] = set()
        self._due: float | None = None
        self._told_s = float("-inf")

    @property
    def due(self) -> float | None:
        """When what waits is to be taken; None while nothing waits."""
        return self._due

    @property
    def later(self) -> float:
        """Pieces of rows that were told of before are not due before this."""
        return self._told_s + min(COALESCE_S, PER_ROW_S * len(self._heard))

    def add_results(self, results: Sequence[EngineResult], now: float) -> None:
        """Finished rows."""
        self._results.extend(results)
        told = self._heard.intersection([result.id for result in results]) if self._heard else ()
        self._heard.difference_update(told)
        self._by(now + (STEP_S if told else GATHER_S))

    def add_pieces(self, pieces: Sequence[EnginePiece], now: float) -> None:
        """In order; joined with those of the same answer that still wait."""
        first = False
        for piece in pieces:
            first = first or piece.id not in self._heard
            self._heard.add(piece.id)
            self._pieces.setdefault((piece.id, piece.choice), Growing()).add(piece)
        self._by(now if first else max(now + STEP_S, self.later))

    def take(self, now: float) -> tuple[list[EnginePiece], list[EngineResult]]:
        """All that waits; the pieces are to go first."""
        pieces = [
            EnginePiece(row, choice, "".join(grown.text), grown.output_tokens, grown.tokens)
            for (row, choice), grown in self._pieces.items()
        ]
        results, self._results = self._results, []
        self._pieces = {}
        self._due = None
        if pieces:
            self._told_s = now
        return pieces, results

    def _by(self, at: float) -> None:
        self._due = at if self._due is None else min(self._due, at)
