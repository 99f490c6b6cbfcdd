"""Rates over the last seconds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Meter:
    """A rate over a sliding stretch of time."""

    span_s: float = 20.0
    _points: list[tuple[float, int, int]] = field(default_factory=list)

    def note(self, now_s: float, rows: int, tokens: int) -> tuple[float, float]:
        """(rows/s, tokens/s) between now and the oldest point within the span."""
        if not self._points or now_s - self._points[-1][0] >= 0.2:
            self._points.append((now_s, rows, tokens))
        while len(self._points) > 2 and now_s - self._points[0][0] > self.span_s:
            self._points.pop(0)
        first = self._points[0]
        passed = now_s - first[0]
        if passed <= 0:
            return 0.0, 0.0
        return (rows - first[1]) / passed, (tokens - first[2]) / passed
