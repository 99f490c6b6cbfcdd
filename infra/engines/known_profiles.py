"""Which profiles an engine's process holds: requests bring ever new ones, and none may stay for ever."""

from __future__ import annotations

from jobs.ports.engine import RequestProfile

MOST = 1024
MOST_CHARS = 16_000_000
"""Of what they say: schemas and tools may be long."""
KEPT = 0.75
"""When there are too many, so much of it is kept: the others are forgotten together, in one frame."""


class KnownProfiles:
    """The caller's side decides, and the other does as it is told, in the order of the frames; so they agree. Those
    that were used last stay. Rows inside keep what was made of their profile, whatever is forgotten meanwhile.
    """

    def __init__(self, most: int = MOST, most_chars: int = MOST_CHARS) -> None:
        self._most = most
        self._most_chars = most_chars
        self._sizes: dict[str, int] = {}
        self._chars = 0

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def use(self, profile: RequestProfile) -> list[str]:
        """It is known from now on. The keys of those that are to be forgotten; never its own."""
        size = self._sizes.pop(profile.key, None)
        if size is None:
            size = _size(profile)
            self._chars += size
        self._sizes[profile.key] = size  # last in the order: the least recently used goes first
        if len(self._sizes) <= self._most and self._chars <= self._most_chars:
            return []
        gone: list[str] = []
        for key in [*self._sizes][:-1]:
            if len(self._sizes) <= self._most * KEPT and self._chars <= self._most_chars * KEPT:
                break
            self._chars -= self._sizes.pop(key)
            gone.append(key)
        return gone

    def clear(self) -> None:
        """The other side is gone."""
        self._sizes.clear()
        self._chars = 0


def _size(profile: RequestProfile) -> int:
    """Characters."""
    return len(profile.sampling) + len(profile.schema or "") + len(profile.tools or "")
