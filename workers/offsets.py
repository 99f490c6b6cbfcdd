"""Which offset may be committed: the end of the unbroken run of finished records in each partition."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class OffsetTracker:
    """Of one partition. Records are taken in ascending order and finished in any order.

    `position` is the next offset to commit: everything before it is finished.
    """

    topic_id: str
    position: int | None = None
    _open: dict[int, bool] = field(default_factory=dict)

    def take(self, offset: int) -> None:
        """A record was polled. One that was taken before (a rebalance) is open again."""
        if self.position is None:
            self.position = offset
        if offset >= self.position:
            self._open[offset] = False

    def finish(self, offset: int) -> None:
        """The database has answered for this record. Unknown offsets (from before a reset) are ignored."""
        if offset in self._open:
            self._open[offset] = True

    def committable(self) -> int | None:
        """The offset to commit now, or None if there is nothing new."""
        before = self.position
        while self._open:
            offset = next(iter(self._open))
            if not self._open[offset]:
                break
            del self._open[offset]
            self.position = offset + 1
        return self.position if self.position != before else None

    @property
    def open(self) -> int:
        """Records taken and not yet committed."""
        return len(self._open)
