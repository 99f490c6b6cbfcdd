"""Figures of several rounds as lines: median, and how far the rounds lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], form: str = ",.1f") -> str:
    """ "95.1 (90.2 to 99.8)": the median, the least and the largest."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Round by round, since a machine drifts between rounds."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)], ".3f")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        first, *rest = zip(row, widths, strict=True)
        lines.append("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]))
    return "\n".join(lines)
