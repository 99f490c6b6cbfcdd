"""Sets of row numbers as sorted, disjoint, half-open ranges: how a task says which rows are its own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Range(NamedTuple):
    """Rows `start` ≤ row < `stop`."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


Ranges = tuple[Range, ...]


def count(ranges: Iterable[Range]) -> int:
    """How many rows the ranges hold."""
    return sum(stop - start for start, stop in ranges)


def from_rows(rows: Iterable[int]) -> Ranges:
    """The ranges of ascending, distinct row numbers."""
    out: list[Range] = []
    start = stop = -1
    for row in rows:
        if row == stop:
            stop += 1
            continue
        if row < stop:
            msg = f"rows must ascend: {row} after {stop - 1}"
            raise ValueError(msg)
        if stop > start:
            out.append(Range(start, stop))
        start, stop = row, row + 1
    if stop > start:
        out.append(Range(start, stop))
    return tuple(out)


def rows_of(ranges: Iterable[Range]) -> Iterator[int]:
    """Every row number, ascending."""
    for start, stop in ranges:
        yield from range(start, stop)


def between(ranges: Sequence[Range], start: int, stop: int) -> Ranges:
    """The part of `ranges` inside [start, stop)."""
    first = max(0, bisect_right(ranges, start, key=lambda r: r.start) - 1)
    out: list[Range] = []
    if stop <= start:
        return ()
    for index in range(first, len(ranges)):
        lo, hi = ranges[index]
        if lo >= stop:
            break
        if hi > start:
            out.append(Range(max(lo, start), min(hi, stop)))
    return tuple(out)


def minus(ranges: Sequence[Range], removed: Sequence[Range]) -> Ranges:
    """The rows of `ranges` that are not in `removed`; both ascending."""
    out: list[Range] = []
    for start, stop in ranges:
        at = start
        for lo, hi in between(removed, start, stop):
            if lo > at:
                out.append(Range(at, lo))
            at = hi
        if at < stop:
            out.append(Range(at, stop))
    return tuple(out)


def nth(ranges: Sequence[Range], start: int, stop: int) -> Ranges:
    """The rows at positions [start, stop) when all rows of `ranges` are counted from 0."""
    out: list[Range] = []
    at = 0
    for lo, hi in ranges:
        size = hi - lo
        first, last = max(start - at, 0), min(stop - at, size)
        if first < last:
            out.append(Range(lo + first, lo + last))
        at += size
        if at >= stop:
            break
    return tuple(out)


def halves(ranges: Sequence[Range]) -> tuple[Ranges, Ranges]:
    """The first and the second half by count; the first is the larger when the count is odd."""
    total = count(ranges)
    middle = (total + 1) // 2
    return nth(ranges, 0, middle), nth(ranges, middle, total)


def at(ranges: Sequence[Range], positions: Iterable[int]) -> Ranges:
    """The rows at these ascending positions, counted as in `nth`; neighbours are joined."""
    rows = list(rows_of(ranges))
    return from_rows(rows[position] for position in positions)
