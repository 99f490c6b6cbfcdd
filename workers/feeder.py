"""The engine's door: feeds rows of the open tasks by the rules of `jobs.feed`, and says how much more is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jobs.feed import FeedPolicy, FeedState, next_chunk
from jobs.model import Priority, Task
from jobs.ports.engine import Engine, EngineInfo
from jobs.room import Pace, RoomPolicy, wanted_tokens
from workers.given import WorkerPolicy
from workers.live import Live
from workers.meter import Meter
from workers.work import Work

PACE_S = 5.0
"""The engine's pace is that of the last seconds: longer, and a start from nothing would take long."""


@dataclass(slots=True, kw_only=True)
class Feeder:
    """`room_tokens` may be called from any thread, the others by the worker's loop alone.

    on_entry: told of work whose first row enters.
    """

    engine: Engine
    policy: FeedPolicy
    room: RoomPolicy
    on_entry: Callable[[Work], None]
    _capped: FeedPolicy = field(init=False)
    _free_s: float | None = None
    _state: FeedState = field(default_factory=FeedState)
    _meter: Meter = field(default_factory=lambda: Meter(span_s=PACE_S))
    _ended_rows: int = 0
    _ended_tokens: float = 0.0
    _tokens_per_s: float = 0.0
    _row_tokens: float = 1.0

    def __post_init__(self) -> None:
        self._capped = self.policy

    def feed(self, works: Sequence[Work], now_s: float, live: Live) -> None:
        """As much as may enter now. live: requests that have seats, or need them."""
        policy = self._beside(live)
        if live.inside:
            works = [work for work in works if not work.task.suspect or work.inside]
        while policy.cap > 0:
            feed, self._state = next_chunk([work.feedable(now_s) for work in works], policy, self._state)
            if feed is None:
                break
            work = works[feed.index]
            if not work.fed:
                self.on_entry(work)
            profile, requests = work.take(feed.rows, feed.rank)
            self.engine.submit(profile, requests)
        self._tokens_per_s = self._meter.note(now_s, self._ended_rows, int(self._ended_tokens))[1]

    def pressed_s(self, now_s: float, live: Live) -> float:
        """For how long requests have left rows no room."""
        if self._free_s is None or not live.presses:
            self._free_s = now_s
        return now_s - self._free_s

    def _beside(self, live: Live) -> FeedPolicy:
        """What is kept free for requests is kept free of the cache too."""
        cap = live.row_cap(self.policy.cap)
        if cap < self.policy.cap and (self.engine.occupancy().kv_use or 0.0) > 1 - live.doorstep.policy.kept_free:
            cap = 0
        if cap != self._capped.cap:
            self._capped = self.policy.evolve(cap=cap)
        return self._capped

    def ended(self, work: Work) -> None:
        """A row came back: the next one starts."""
        self._ended_rows += 1
        self._ended_tokens += work.row_tokens

    def room_tokens(self, priority: Priority, opening: Sequence[Task], works: Sequence[Work]) -> int:
        """How many more tokens of a priority are wanted, beside the tasks at hand; negative: it holds more than that.

        Each priority has room of its own: an urgent task waits behind nothing, and a constant stream of them does not
        keep all others out.
        """
        tasks = [*opening, *(work.task for work in works)]
        if tasks:
            self._row_tokens = sum(task.tokens for task in tasks) / max(1, sum(task.rows for task in tasks))
        waiting = sum(task.tokens for task in opening if task.priority is priority)
        waiting += sum(int(work.unfed * work.row_tokens) for work in works if work.task.priority is priority)
        return wanted_tokens(Pace(tokens_per_s=self._tokens_per_s, row_tokens=self._row_tokens), self.room) - waiting


def feeder_of(engine: Engine, info: EngineInfo, policy: WorkerPolicy, on_entry: Callable[[Work], None]) -> Feeder:
    """With the policies that suit the engine."""
    feed = FeedPolicy.for_engine(info.max_num_seqs, policy.lower_share)
    room = RoomPolicy(cap=feed.cap, kv_tokens=info.kv_cache_tokens, soon_s=policy.soon_s)
    return Feeder(engine=engine, policy=feed, room=room, on_entry=on_entry)
