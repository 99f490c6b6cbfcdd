"""Which offset may be committed: the end of the unbroken run of finished records in each partition."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from jobs.ports.queue import TopicPartition
from jobs.ports.store import Place


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


@dataclass(slots=True)
class Offsets:
    """Of all partitions of a consumer. `take` and `committable` in the thread that polls, `finish` from any."""

    _trackers: dict[TopicPartition, OffsetTracker] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, place: Place) -> None:
        """A record was polled; one of a topic that was made anew begins its partition anew."""
        key = (place.topic, place.partition)
        with self._lock:
            tracker = self._trackers.get(key)
            if tracker is None or tracker.topic_id != place.topic_id:
                tracker = self._trackers[key] = OffsetTracker(topic_id=place.topic_id)
            tracker.take(place.offset)

    def finish(self, place: Place) -> None:
        """It has been answered for; one of a topic that was made anew since is ignored."""
        with self._lock:
            tracker = self._trackers.get((place.topic, place.partition))
            if tracker is not None and tracker.topic_id == place.topic_id:
                tracker.finish(place.offset)

    def committable(self) -> dict[TopicPartition, int]:
        """What is new to commit, by partition."""
        with self._lock:
            return {key: at for key, tracker in self._trackers.items() if (at := tracker.committable()) is not None}
