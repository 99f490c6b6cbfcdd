"""For whom a dispatcher leases: the one worker of its own process, or the workers of a pool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from jobs.model import Job, Priority, Task
from workers.worker import Worker

log = structlog.get_logger()

Room = Mapping[Priority, int]
"""Tokens of work that a worker still wants, by priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """`workers.dispatcher.Crew` of one worker in the same process."""

    owner: str
    worker: Worker

    def room(self, priority: Priority) -> bool:
        return self.worker.room(priority)

    def whom(self, wanted: Sequence[tuple[Priority, int]]) -> list[str | None]:
        """It was asked for its room at the poll."""
        return [self.owner for _ in wanted]

    def accept(self, job: Job, task: Task) -> None:
        self.worker.accept(job, task)


@dataclass(slots=True, kw_only=True)
class Crowd:
    """`workers.dispatcher.Crew` of the workers of a pool, by what they last said of their room.

    hand: gives a task to its owner; False if he did not take it within a beat. give_back: returns the task without a
    strike. A task takes its room at once, so that one report is not used twice.
    """

    hand: Callable[[Job, Task], bool]
    give_back: Callable[[Task], None]
    _rooms: dict[str, dict[Priority, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def seen(self, rooms: Mapping[str, Room]) -> None:
        """The reports of all workers that answered, by owner."""
        with self._lock:
            self._rooms = {owner: dict(room) for owner, room in rooms.items()}

    def room(self, priority: Priority) -> bool:
        return self.whom([(priority, 0)]) != [None]

    def whom(self, wanted: Sequence[tuple[Priority, int]]) -> list[str | None]:
        """The one with the most room, after what those before it in the list take."""
        with self._lock:
            rooms = {owner: dict(room) for owner, room in self._rooms.items()}
        return [_most_room(rooms, priority, tokens) for priority, tokens in wanted]

    def accept(self, job: Job, task: Task) -> None:
        with self._lock:
            room = self._rooms.get(str(task.owner), {})
            room[task.priority] = room.get(task.priority, 0) - task.tokens
        if not self.hand(job, task):
            log.warning("not_accepted", owner=task.owner)
            with self._lock:
                self._rooms.pop(str(task.owner), None)
            self.give_back(task)


def _most_room(rooms: Mapping[str, dict[Priority, int]], priority: Priority, tokens: int) -> str | None:
    """Whoever has it; the tokens are taken off it."""
    best = max(rooms, key=lambda owner: rooms[owner].get(priority, 0), default=None)
    if best is None or rooms[best].get(priority, 0) <= 0:
        return None
    rooms[best][priority] -= tokens
    return best
