"""The bytes that this process has just put: what a small job writes is read again within seconds, step by step."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

_MOST_BYTES = 16 << 20
_LARGEST_BYTES = 64 << 10


class Recent:
    """By URI; what was put first goes first. An object never changes, so what is here is what there is or was."""

    def __init__(self) -> None:
        self._data: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, items: Iterable[tuple[str, bytes]]) -> None:
        """Once they are durable."""
        with self._lock:
            for uri, data in items:
                if len(data) <= _LARGEST_BYTES:
                    self._forget(uri)
                    self._data[uri] = data
                    self._bytes += len(data)
            while self._bytes > _MOST_BYTES:
                self._forget(next(iter(self._data)))

    def get(self, uri: str) -> bytes | None:
        return self._data.get(uri)

    def forget(self, uris: Iterable[str]) -> None:
        """They were deleted, or are about to be written over."""
        with self._lock:
            for uri in uris:
                self._forget(uri)

    def _forget(self, uri: str) -> None:
        self._bytes -= len(self._data.pop(uri, b""))
