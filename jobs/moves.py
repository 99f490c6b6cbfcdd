"""The moves of a task, as data: one guard, one change, and what goes into the same transaction.

Every function here is pure. Two interpreters carry moves out: `jobs.board` in memory (for the model check) and the
SQL store. Guards compare state and token (or ticket); never the epoch or the time alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from jobs import ranges
from jobs.ledger import Entry
from jobs.model import JobState, Message, Part, Source, Task, TaskState, Usage, Value, VoidReason
from jobs.ranges import Ranges

RUNNING = frozenset({JobState.RUNNING})
ENDING = frozenset({JobState.CANCELLING, JobState.EXPIRING})


class Answer(StrEnum):
    """What a store says of a move: it was made; you made it before; the guard did not hold."""

    MADE = "made"
    ALREADY = "already"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard(Value):
    """What must hold in the database. None: not looked at.

    states: the task is in one of them. jobs: the job is in one of these states (its row is share-locked).
    leader: (scope, epoch) must be the current leadership.
    """

    states: frozenset[TaskState]
    epoch: int | None = None
    ticket: str | None = None
    token: str | None = None
    pool: str | None = None
    jobs: frozenset[JobState] | None = None
    leader: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(Value):
    """token: random, fences every later move. lease_s: from the database's now."""

    token: str
    owner: str
    lease_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste(Value):
    """Work that will be done again. entries: its posting, empty when no token was spent."""

    cause: str
    usage: Usage = Usage()
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Value):
    """One guarded step of one task. `to` is the state after it.

    ticket, lease: set by release and by lease. reserve_pico: opens a reservation; closes: ends the open one as
    "closed" or "voided". suspect, alone_deaths: new values, or None to keep. children: inserted as queued.
    message: goes to the outbox. part, usage, entries: the commit. settle: whether the folder hears of it.
    """

    name: str
    task: str
    guard: Guard
    to: TaskState
    ticket: str | None = None
    lease: Lease | None = None
    reserve_pico: int | None = None
    closes: str | None = None
    suspect: bool | None = None
    alone_deaths: int | None = None
    void_reason: VoidReason | None = None
    children: tuple[Task, ...] = ()
    message: Message | None = None
    part: Part | None = None
    usage: Usage | None = None
    entries: tuple[Entry, ...] = ()
    waste: Waste | None = None


def release(task: Task, *, ticket: str, reserve_pico: int, leader: tuple[str, int]) -> Move:
    """queued → released: reserve its cost, publish its message by the outbox."""
    message = Message(task=task.id, epoch=task.epoch + 1, ticket=ticket, pool=task.pool, priority=task.priority)
    return Move(
        name="release",
        task=task.id,
        guard=Guard(states=frozenset({TaskState.QUEUED}), epoch=task.epoch, jobs=RUNNING, leader=leader),
        to=TaskState.RELEASED,
        ticket=ticket,
        reserve_pico=reserve_pico,
        message=message,
    )


def withdraw(task: Task) -> Move:
    """released → queued: the job was paused, its priority changed, or its message was lost."""
    assert task.ticket is not None, "a guard without a ticket would take back anyone's release"
    return Move(
        name="withdraw",
        task=task.id,
        guard=Guard(states=frozenset({TaskState.RELEASED}), epoch=task.epoch, ticket=task.ticket),
        to=TaskState.QUEUED,
        closes="voided",
    )


def lease(message: Message, grant: Lease) -> Move:
    """released → leased, by the very message that released it."""
    return Move(
        name="lease",
        task=message.task,
        guard=Guard(
            states=frozenset({TaskState.RELEASED}), epoch=message.epoch, ticket=message.ticket, pool=message.pool
        ),
        to=TaskState.LEASED,
        lease=grant,
    )


def commit(task: Task, *, part: Part, usage: Usage, entries: tuple[Entry, ...], waste: Waste | None = None) -> Move:
    """leased → done: the part counts and is charged, in one transaction. waste: of rows that were aborted."""
    return Move(
        name="commit",
        task=task.id,
        guard=_held(task),
        to=TaskState.DONE,
        closes="closed",
        part=part,
        usage=usage,
        entries=entries,
        waste=waste,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Value):
    """Rows that become one child. suspect: they were in an engine that died, so the child runs alone."""

    rows: Ranges
    suspect: bool


def drain(
    task: Task,
    groups: Sequence[Group],
    *,
    part: Part,
    usage: Usage,
    entries: tuple[Entry, ...],
    waste: Waste | None = None,
) -> Move:
    """leased → split: the finished rows are committed, children take the others."""
    return Move(
        name="drain",
        task=task.id,
        guard=_held(task),
        to=TaskState.SPLIT,
        closes="closed",
        children=children(task, groups),
        part=part,
        usage=usage,
        entries=entries,
        waste=waste,
    )


def divide(task: Task, groups: Sequence[Group], waste: Waste) -> Move:
    """leased → split without a part: its engine died, and the rows that were inside are set apart (or halved)."""
    return Move(
        name="divide",
        task=task.id,
        guard=_held(task),
        to=TaskState.SPLIT,
        closes="voided",
        children=children(task, groups),
        waste=waste,
    )


def hand_back(task: Task, waste: Waste, *, suspect: bool | None = None, alone_deaths: int | None = None) -> Move:
    """leased → queued: by its worker, or by the reaper once the lease is over."""
    return Move(
        name="hand_back",
        task=task.id,
        guard=_held(task),
        to=TaskState.QUEUED,
        closes="voided",
        suspect=suspect,
        alone_deaths=alone_deaths,
        waste=waste,
    )


def sweep(task: Task, reason: VoidReason) -> Move:
    """queued or released → void, in a job that is ending."""
    return Move(
        name="sweep",
        task=task.id,
        guard=Guard(states=frozenset({TaskState.QUEUED, TaskState.RELEASED}), jobs=ENDING),
        to=TaskState.VOID,
        closes="voided",
        void_reason=reason,
    )


def void_leased(task: Task, reason: VoidReason, waste: Waste) -> Move:
    """leased → void: its job is ending, or its single row killed the engine alone too often (`dead`)."""
    return Move(
        name="void_leased",
        task=task.id,
        guard=_held(task) if reason is VoidReason.DEAD else _held(task).evolve(jobs=ENDING),
        to=TaskState.VOID,
        closes="voided",
        void_reason=reason,
        waste=waste,
    )


def children(parent: Task, groups: Sequence[Group]) -> tuple[Task, ...]:
    """One child a group that has rows."""
    filled = [group for group in groups if group.rows]
    return tuple(child(parent, number, group.rows, suspect=group.suspect) for number, group in enumerate(filled))


def child(parent: Task, number: int, rows: Ranges, *, suspect: bool) -> Task:
    """Child `parent.number`: some of its parent's rows, queued at epoch 0, estimates in proportion."""
    size = ranges.count(rows)
    return Task(
        id=f"{parent.id}.{number}",
        job=parent.job,
        segment=parent.segment,
        pool=parent.pool,
        priority=parent.priority,
        source=Source(staged=parent.source.staged, row_group=parent.source.row_group),
        ranges=rows,
        rows=size,
        est_input_tokens=-(-parent.est_input_tokens * size // max(1, parent.rows)),
        est_output_tokens=-(-parent.est_output_tokens * size // max(1, parent.rows)),
        suspect=suspect,
        parent=parent.id,
    )


def _held(task: Task) -> Guard:
    assert task.token is not None, "a guard without a token would take anyone's lease"
    return Guard(states=frozenset({TaskState.LEASED}), token=task.token)


def after(task: Task, move: Move, *, now: float) -> Task:
    """The task as it stands once `move` was made; its guard is not looked at here."""
    leased = move.lease
    return task.evolve(
        state=move.to,
        epoch=task.epoch + 1 if move.name == "release" else task.epoch,
        ticket=move.ticket if move.name == "release" else (task.ticket if leased else None),
        token=leased.token if leased else (task.token if move.to.terminal else None),
        owner=leased.owner if leased else (task.owner if move.to.terminal else None),
        lease_until=now + leased.lease_s if leased else None,
        suspect=task.suspect if move.suspect is None else move.suspect,
        alone_deaths=task.alone_deaths if move.alone_deaths is None else move.alone_deaths,
        void_reason=move.void_reason,
    )


def holds(guard: Guard, task: Task, job_state: JobState, leader_epoch: int | None) -> bool:
    """Whether a guard holds against what the database says."""
    return (
        task.state in guard.states
        and guard.epoch in {None, task.epoch}
        and guard.ticket in {None, task.ticket}
        and guard.token in {None, task.token}
        and guard.pool in {None, task.pool}
        and (guard.jobs is None or job_state in guard.jobs)
        and (guard.leader is None or guard.leader[1] == leader_epoch)
    )


def same_as_before(move: Move, task: Task, parts: Sequence[Part]) -> bool:
    """Whether a move that lost had in truth been made by the same caller: same token, same end, same part."""
    token = move.guard.token if move.lease is None else move.lease.token
    if token is None or task.token != token or task.state is not move.to:
        return False
    return move.part is None or any(p.checksum == move.part.checksum and p.uri == move.part.uri for p in parts)
