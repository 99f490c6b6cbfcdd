"""Which open task's rows enter the engine next: rank first, then the order of opening; suspects run alone.

A rank that waits below a more urgent one has a reserved share of the seats, so that nothing starves; a more urgent row
still gets the next free seat, as long as its rank does not fill its own part of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.model import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedable(Value):
    """An open task as the feeder sees it. unfed: rows not yet in the engine; in_flight: rows inside it now."""

    rank: int
    opened: int
    unfed: int
    in_flight: int
    suspect: bool = False
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPolicy(Value):
    """cap: rows in the engine at most. chunk: rows of one task at a time. suspect_wait_s: after so long a suspect
    task no longer lets others go before it. lower_share: of the seats, for ranks below the most urgent one that waits.
    """

    cap: int
    chunk: int = 64
    suspect_wait_s: float = 30.0
    lower_share: float = 0.1

    @classmethod
    def for_engine(cls, max_num_seqs: int, lower_share: float = 0.1) -> FeedPolicy:
        """1.75 × max_num_seqs: the engine always finds a row waiting when one ends (measured: 1.5–2 × fills it)."""
        return cls(cap=max(2, max_num_seqs + -(-max_num_seqs * 3 // 4)), lower_share=lower_share)

    @property
    def least_room(self) -> int:
        """Below this much room it is not worth sending a chunk: fewer, fuller messages to the engine's process."""
        return max(1, min(32, self.cap // 8))


def next_chunk(tasks: Sequence[Feedable], policy: FeedPolicy) -> tuple[int, int] | None:
    """(index of the task, rows to feed), or None to feed nothing now."""
    inside = sum(task.in_flight for task in tasks)
    room = policy.cap - inside
    if room < policy.least_room and inside:
        return None
    index = _pick(tasks, inside, policy)
    if index is None:
        return None
    left = seats_left(tasks, tasks[index].rank, policy)
    return index, min(room, policy.chunk, tasks[index].unfed, max(1, left))


def seats_left(tasks: Sequence[Feedable], rank: int, policy: FeedPolicy) -> int:
    """Seats that a rank may still take beside those reserved for lower ranks that wait."""
    seats = policy.cap
    waiting = sorted({task.rank for task in tasks if task.unfed and not task.suspect})
    for number, other in enumerate(waiting, 1):
        lower = len(waiting) - number  # a seat at least for each of them
        own = max(1, min(seats - lower, round(seats * (1 - policy.lower_share)))) if lower else seats
        if other == rank:
            return own - sum(task.in_flight for task in tasks if task.rank == rank)
        seats -= own
    return policy.cap


def _pick(tasks: Sequence[Feedable], inside: int, policy: FeedPolicy) -> int | None:
    alone = [i for i, t in enumerate(tasks) if t.suspect and t.in_flight]
    if alone:
        return alone[0] if tasks[alone[0]].unfed else None
    suspects = [i for i, t in enumerate(tasks) if t.suspect and t.unfed]
    others = [i for i, t in enumerate(tasks) if not t.suspect and t.unfed]
    impatient = any(tasks[i].waited_s > policy.suspect_wait_s for i in suspects)
    if others and not impatient:
        seated = [i for i in others if seats_left(tasks, tasks[i].rank, policy) > 0]
        return min(seated or others, key=lambda i: (tasks[i].rank, tasks[i].opened))
    if suspects and not inside:
        return min(suspects, key=lambda i: (tasks[i].rank, tasks[i].opened))
    return None
