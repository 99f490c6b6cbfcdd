"""Tasks, reservations, outbox and manifest in memory: the reference interpreter of `jobs.moves`.

It is immutable, so that a model check can branch from any state; the SQL store is held to the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jobs import moves
from jobs.ledger import Entry
from jobs.model import JobState, Message, Part, Task, Value
from jobs.moves import Answer, Guard, Move

HoldsRule = Callable[[Guard, Task, JobState, int | None], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board(Value):
    """One job's tasks and what the database keeps beside them."""

    job_state: JobState = JobState.RUNNING
    leader_epoch: int = 1
    now: float = 0.0
    tasks: Mapping[str, Task] = field(default_factory=dict)
    reserved: Mapping[str, int] = field(default_factory=dict)
    outbox: tuple[Message, ...] = ()
    manifest: tuple[Part, ...] = ()
    entries: tuple[Entry, ...] = ()
    wasted: frozenset[tuple[str, int, str]] = frozenset()

    def make(self, move: Move, holds: HoldsRule = moves.holds) -> tuple[Board, Answer]:
        """Carry out one move, or say why not. `holds` is replaceable so that weakened guards can be tried."""
        task = self.tasks.get(move.task)
        if task is None:
            return self, Answer.LOST
        if not holds(move.guard, task, self.job_state, self.leader_epoch):
            parts = [p for p in self.manifest if p.task == task.id]
            return self, Answer.ALREADY if moves.same_as_before(move, task, parts) else Answer.LOST
        return self._made(task, move), Answer.MADE

    def _made(self, task: Task, move: Move) -> Board:
        tasks = {**self.tasks, task.id: moves.after(task, move, now=self.now)}
        tasks |= {c.id: c for c in move.children}
        reserved = dict(self.reserved)
        if move.closes:
            reserved.pop(task.id, None)
        if move.reserve_pico is not None:
            reserved[task.id] = move.reserve_pico
        wasted = self.wasted
        entries = self.entries + move.entries
        if move.waste is not None:
            wasted |= {(task.id, task.epoch, move.waste.cause)}
            entries += move.waste.entries
        return self.evolve(
            tasks=tasks,
            reserved=reserved,
            outbox=self.outbox + ((move.message,) if move.message else ()),
            manifest=self.manifest + ((move.part,) if move.part else ()),
            entries=entries,
            wasted=wasted,
        )
