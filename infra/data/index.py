"""Where an input row lies: file, row group, place in the group."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from jobs.model import InputFile
from jobs.ranges import Range


class Piece(NamedTuple):
    """Rows `start` ≤ row < `stop` of one row group; `first` is the input row number of `start`."""

    file: InputFile
    group: int
    start: int
    stop: int
    first: int


def sizes_of(file: InputFile) -> Sequence[int]:
    """Uncompressed bytes of each row group; guessed from the file's size where nobody wrote them down."""
    if file.row_group_bytes:
        return file.row_group_bytes
    return [4 * file.size * rows // max(1, file.rows) for rows in file.row_groups]


class InputIndex:
    """A frozen input list, searchable by row number. Row groups are looked at only for files that are read."""

    def __init__(self, files: Sequence[InputFile]) -> None:
        self.files = files
        self.rows = sum(file.rows for file in files)
        self._starts = [file.first_row for file in files]
        self._groups: dict[int, list[int]] = {}

    def pieces(self, ranges: Sequence[Range]) -> Iterator[Piece]:
        """Ranges of input rows, cut at row groups."""
        for start, stop in ranges:
            at = start
            while at < stop:
                # Files without rows share a start with the next one: bisect_right finds the last, which has the row.
                number = bisect_right(self._starts, at) - 1
                file = self.files[number]
                piece = self._piece(number, file, at, min(stop, file.first_row + file.rows))
                yield piece
                at += piece.stop - piece.start

    def row_bytes(self, ranges: Sequence[Range]) -> int:
        """Bytes of one of these input rows, unpacked, where they are widest. A row group is taken to be even in itself.

        Of a tenant's Parquet the frozen list has the most that a group can decode to (`bounds.py`).
        """
        widths = [
            sizes_of(piece.file)[piece.group] // max(1, piece.file.row_groups[piece.group])
            for piece in self.pieces(ranges)
        ]
        return max(widths, default=0)

    def _piece(self, number: int, file: InputFile, at: int, stop: int) -> Piece:
        starts = self._groups.get(number)
        if starts is None:
            starts = self._groups[number] = list(accumulate(file.row_groups, initial=0))
        inside = at - file.first_row
        group = bisect_right(starts, inside) - 1
        end = min(stop - file.first_row, starts[group + 1])
        return Piece(file, group, inside - starts[group], end - starts[group], at)
