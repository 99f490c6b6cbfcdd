"""What the workers say they have generated: so that repeated work is measured, and not only what the ledger knows of it
(what a worker did between its last beat and its death is in no book).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workers.reports import Report

Ask = Callable[[], Mapping[str, Report]]
"""The reports of the workers that answer at once, by name."""


@dataclass(kw_only=True)
class Count:
    """Of output tokens and rows since it was made. A worker that is gone counts with what it last said."""

    ask: Ask
    _before: dict[str, tuple[int, int]] = field(default_factory=dict)
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.look()
        self._before = dict(self._last)

    def look(self) -> None:
        for name, report in self.ask().items():
            self._last[name] = (report.rows, report.output_tokens)

    @property
    def rows(self) -> int:
        return self._since(0)

    @property
    def output_tokens(self) -> int:
        return self._since(1)

    def _since(self, what: int) -> int:
        return sum(said[what] - self._before.get(name, (0, 0))[what] for name, said in self._last.items())
