"""A seekable reader over byte ranges of an object, made for Parquet: several places are read on at once."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

WHOLE_BYTES = 1 << 20
"""An object as small as this is read at once."""
FIRST_BYTES = 256 << 10
LARGEST_BYTES = 4 << 20
"""One request takes about 30 ms before its first byte: it should bring some megabytes where reading goes on."""
HELD_BYTES = 8 << 20
"""Of one reader; of the oldest places the least."""
BUFFER_BYTES = 64 << 10
_MOST_BYTES = 16 << 20  # of one request, whatever is asked for


@dataclass(frozen=True, slots=True)
class _Window:
    start: int
    data: bytes

    @property
    def stop(self) -> int:
        return self.start + len(self.data)


class RangeReader(io.RawIOBase):
    """fetch: the bytes start ≤ n < stop.

    Parquet is read a column chunk at a time and from several in turn, so there is a window at each place. One that is
    read past its end makes way for the next, twice as large up to LARGEST_BYTES; a new place begins small, so that a
    column that is not wanted is not fetched with its neighbour.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._at = 0
        self._windows: list[_Window] = []  # the one used last stands last

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]  # any writable buffer
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        window = self._window(self._at, wanted)
        start = self._at - window.start
        found = memoryview(window.data)[start : start + wanted]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def _window(self, at: int, wanted: int) -> _Window:
        for window in self._windows:
            if window.start <= at < window.stop:
                self._use(window)
                return window
        start, size = self._next(at)
        size = min(max(size, wanted), _MOST_BYTES, self._size - start)
        fresh = _Window(start, self._fetch(start, start + size))
        self._windows.append(fresh)
        while len(self._windows) > 1 and sum(len(window.data) for window in self._windows) > HELD_BYTES:
            self._windows.pop(0)
        return fresh

    def _next(self, at: int) -> tuple[int, int]:
        """Where to fetch from, and how much for reading ahead."""
        if self._size <= WHOLE_BYTES:
            return 0, self._size
        before = next((window for window in self._windows if window.stop == at), None)
        if before is None:
            return at, FIRST_BYTES
        self._windows.remove(before)
        room = HELD_BYTES // (len(self._windows) + 1)
        return at, min(2 * len(before.data), LARGEST_BYTES, max(room, FIRST_BYTES))

    def _use(self, window: _Window) -> None:
        if self._windows[-1] is not window:
            self._windows.remove(window)
            self._windows.append(window)
