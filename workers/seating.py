"""Who has a seat in the engine, as far as can be told from outside: requests that have begun, those in line, rows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from workers.asks import Ask, Pack


@dataclass(slots=True, kw_only=True)
class Seating:
    """The engine gives a seat that comes free to the request that waits longest, and to a row only if none waits. It
    takes none away. So ends are what counts: `row_ended`, and `left` of a request's sequences.

    Written by the worker's loop alone; the numbers may be read from any thread. seats: of the engine. asked: sequences
    of requests inside it. behind: those still to enter of requests that have entered in part. rows: of tasks, inside;
    running: those of them that have a seat.
    """

    seats: int
    asked: int = 0
    behind: int = 0
    rows: int = 0
    running: int = 0
    line: deque[Ask] = field(default_factory=deque)
    _ended: int = 0

    @property
    def free(self) -> int:
        """Seats that nobody has; negative where a request has more sequences than there were seats."""
        return self.seats - self.running - (self.asked - sum([ask.seats for ask in self.line]))

    @property
    def used(self) -> int:
        """Seats that rows have, and that requests have or wait for."""
        return self.running + self.asked

    def entered(self, ask: Ask, pack: Pack) -> None:
        """A pack of it is inside."""
        if ask.inside or ask.results:
            self.behind -= pack.seats
        else:
            self.behind += sum([more.seats for more in ask.packs])
        self.asked += pack.seats

    def left(self, pack: Pack) -> None:
        """A pack came back."""
        self.asked -= pack.seats

    def dropped(self, ask: Ask) -> None:
        """What has not entered of it never will."""
        if ask.inside or ask.results:
            self.behind -= sum([pack.seats for pack in ask.packs])
        ask.packs.clear()

    def row_ended(self) -> None:
        self._ended += 1

    def begin(self, rows: int, now_s: float) -> bool:
        """Give out what came free. rows: inside now. Whether the number of rows changed."""
        changed = rows != self.rows
        self.rows, self.running, self._ended = rows, max(0, min(rows, self.running - self._ended)), 0
        while self.line and (self.line[0].first_s is not None or self.free > 0):
            ask = self.line.popleft()
            ask.begun_s = now_s
        self.running = min(rows, self.running + max(0, self.free))
        return changed

    def clear(self) -> None:
        """The engine is empty."""
        self.line.clear()
        self.asked = self.behind = self.rows = self.running = self._ended = 0
