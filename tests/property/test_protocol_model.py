"""The protocol of a task, explored exhaustively over the real transition functions, and broken on purpose.

One task of two rows, a topic that may lose and repeat messages, leases that end under a live worker, zombies that
commit late, a lost commit answer, cancel, and a deposed scheduler. Every reachable state keeps the invariants, and from
every one the job can still end. Each mutant (a weakened guard, or a move that forgets something) must break that.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from jobs import moves, ranges
from jobs.board import Board
from jobs.ledger import Entry
from jobs.model import JobState, Message, Part, Priority, Source, Task, TaskState, Usage, VoidReason
from jobs.moves import Answer, Group, Guard, Lease, Move, Waste
from jobs.ranges import Range

ROWS = 2
MAX_EPOCH = 2
FAULTS = int(os.environ.get("NIGHTMILL_MODEL_FAULTS", "1"))
"""Faults along one path. Two take longer than the suite allows a test, some two minutes: `make chaos` sets
`NIGHTMILL_MODEL_FAULTS=2` and a longer `--timeout`.
"""
pytestmark = pytest.mark.property

Holds = Callable[[Guard, Task, JobState, int | None], bool]
Twist = Callable[[Move], Move]


@dataclass(frozen=True)
class Held:
    """What a worker believes it holds: the task as it was leased, and a part it may have written."""

    task: Task
    part: Part | None = None
    answered: bool = True


@dataclass(frozen=True)
class World:
    board: Board
    topic: tuple[Message, ...] = ()
    relayed: int = 0
    hands: tuple[Held, ...] = ()
    stale_view: tuple[Task, ...] = ()
    tokens: int = 0
    faults: int = 0
    zombie: str = ""

    def key(self) -> object:
        b = self.board
        return (
            b.job_state,
            b.leader_epoch,
            tuple(sorted((t.id, t.state, t.epoch, t.ticket, t.token, t.ranges, t.suspect) for t in b.tasks.values())),
            tuple(sorted(b.reserved.items())),
            tuple(sorted((p.task, p.uri) for p in b.manifest)),
            tuple(sorted(e.txn for e in b.entries)),
            tuple(sorted((m.task, m.epoch, m.ticket) for m in self.topic)),
            self.relayed,
            tuple(sorted((h.task.token, h.part.uri if h.part else "", h.answered) for h in self.hands)),
            self.stale_view,
            self.faults,
            self.zombie,
        )


@dataclass(frozen=True)
class Rules:
    """The protocol under test: how guards are judged, and what a mutant does to a move."""

    holds: Holds = moves.holds
    twist: Twist = field(default=lambda move: move)


def first_task() -> Task:
    return Task(
        id="j.s00000.00000",
        job="j",
        segment=0,
        pool="p",
        priority=Priority.NORMAL,
        source=Source(),
        ranges=(Range(0, ROWS),),
        rows=ROWS,
    )


def start() -> World:
    task = first_task()
    return World(board=Board(tasks={task.id: task}), stale_view=(task,))


def part_of(task: Task, rows: ranges.Ranges) -> Part:
    return Part(
        task=task.id,
        uri=f"{task.id}-{task.token}-{rows}",
        size=1,
        checksum=f"{task.token}{rows}",
        rows=ranges.count(rows),
        first_row=rows[0].start,
        last_row=rows[-1].stop - 1,
        ascending=True,
        outcomes={"ok": ranges.count(rows)},
    )


def entry(task: Task) -> Entry:
    return Entry(
        txn=f"use:{task.id}",
        line=0,
        kind="usage",
        account="a",
        amount_pico=0,
        currency="USD",
        tenant="t",
        project="",
        task=task.id,
    )


def made(world: World, rules: Rules, move: Move) -> tuple[World, Answer]:
    board, answer = world.board.make(rules.twist(move), rules.holds)
    return replace(world, board=board), answer


# ---- what can happen next -------------------------------------------------------------------------


def steps(world: World, rules: Rules) -> Iterator[World]:
    yield from scheduler_steps(world, rules)
    yield from dispatcher_steps(world, rules)
    yield from worker_steps(world, rules)
    yield from ending_steps(world, rules)
    yield from recovery_steps(world, rules)


def all_steps(world: World, rules: Rules) -> Iterator[tuple[World, bool]]:
    """(what may come next, whether a fault made it so)."""
    for after in steps(world, rules):
        yield after, False
    if world.faults < FAULTS:
        for after in fault_steps(replace(world, faults=world.faults + 1), rules):
            yield after, True


def scheduler_steps(world: World, rules: Rules) -> Iterator[World]:
    """Release by what the scheduler last saw (which may be old), relay, withdraw."""
    seen = {t.id: t for t in (*world.stale_view, *world.board.tasks.values())}
    for task in {*seen.values(), *world.stale_view}:
        if task.state is TaskState.QUEUED and task.epoch < MAX_EPOCH:
            for epoch in {1, world.board.leader_epoch}:
                ticket = f"t{task.epoch + 1}.{epoch}"
                yield made(world, rules, moves.release(task, ticket=ticket, reserve_pico=1, leader=("p", epoch)))[0]
    if world.relayed < len(world.board.outbox):
        message = world.board.outbox[world.relayed]
        yield replace(world, topic=(*world.topic, message), relayed=world.relayed + 1)


def dispatcher_steps(world: World, rules: Rules) -> Iterator[World]:
    for index, message in enumerate(world.topic):
        rest = world.topic[:index] + world.topic[index + 1 :]
        yield lease(replace(world, topic=rest), rules, message)


def lease(world: World, rules: Rules, message: Message) -> World:
    token = f"k{world.tokens}"
    after, answer = made(world, rules, moves.lease(message, Lease(token=token, owner="w", lease_s=30)))
    if answer is not Answer.MADE:
        return after
    task = after.board.tasks[message.task]
    return replace(after, hands=(*after.hands, Held(task=task)), tokens=world.tokens + 1)


def worker_steps(world: World, rules: Rules) -> Iterator[World]:
    for index, held in enumerate(world.hands):
        rest = world.hands[:index] + world.hands[index + 1 :]
        task = held.task
        for move in worker_moves(held):
            after, answer = made(world, rules, move)
            if answer is Answer.MADE and world.board.tasks[task.id].token != task.token:
                after = replace(after, zombie=f"{move.name} by {task.token}")
            yield replace(after, hands=rest)
            if move.part is not None and world.faults < FAULTS:  # the answer got lost: it is retried
                retry = Held(task=task, part=move.part, answered=False)
                yield replace(after, hands=(*rest, retry), faults=world.faults + 1)


def worker_moves(held: Held) -> Iterator[Move]:
    task = held.task
    if held.answered or held.part == part_of(task, task.ranges):
        part = part_of(task, task.ranges)
        yield moves.commit(task, part=part, usage=Usage(rows=task.rows), entries=(entry(task),))
    if not held.answered:
        return
    waste = Waste(cause="drain")
    if task.rows > 1:
        done, left = ranges.halves(task.ranges)
        part = part_of(task, done)
        yield moves.drain(
            task, [Group(rows=left, suspect=False)], part=part, usage=Usage(rows=1), entries=(entry(task),)
        )
        yield moves.divide(task, [Group(rows=done, suspect=True), Group(rows=left, suspect=True)], waste)
    yield moves.hand_back(task, waste, suspect=True)
    if task.rows == 1:
        yield moves.void_leased(task, VoidReason.DEAD, waste)


def ending_steps(world: World, rules: Rules) -> Iterator[World]:
    """The sweep goes by what it last saw, which may be old."""
    if world.board.job_state is JobState.RUNNING:
        return
    for task in {*world.stale_view, *world.board.tasks.values()}:
        if task.state in {TaskState.QUEUED, TaskState.RELEASED}:
            yield made(world, rules, moves.sweep(task, VoidReason.CANCELLED))[0]
    for held in world.hands:
        yield made(world, rules, moves.void_leased(held.task, VoidReason.CANCELLED, Waste(cause="cancel")))[0]


def recovery_steps(world: World, rules: Rules) -> Iterator[World]:
    """The reaper: leases whose worker is gone, and published messages that are in no topic any more."""
    held = {h.task.token for h in world.hands}
    published = {m.ticket for m in world.board.outbox[: world.relayed]} - {m.ticket for m in world.topic}
    for task in world.board.tasks.values():
        if task.state is TaskState.LEASED and task.token not in held:
            yield made(world, rules, moves.hand_back(task, Waste(cause="worker_died")))[0]
        if task.state is TaskState.RELEASED and task.ticket in published:
            yield made(world, rules, moves.withdraw(task))[0]


def fault_steps(world: World, rules: Rules) -> Iterator[World]:
    board = world.board
    for index in range(len(world.hands)):  # the worker dies
        yield replace(world, hands=world.hands[:index] + world.hands[index + 1 :])
    for task in board.tasks.values():
        if task.state is TaskState.LEASED:  # the lease ends, its worker may live on as a zombie
            yield made(world, rules, moves.hand_back(task, Waste(cause="lease_lost")))[0]
        if task.state is TaskState.RELEASED:  # taken back: paused, or its message was lost
            yield made(world, rules, moves.withdraw(task))[0]
    for index, message in enumerate(world.topic):
        yield replace(world, topic=world.topic[:index] + world.topic[index + 1 :])
        yield replace(world, topic=(*world.topic, message))
    if board.job_state is JobState.RUNNING:
        yield replace(world, board=board.evolve(job_state=JobState.CANCELLING))
    if board.leader_epoch == 1:
        yield replace(world, board=board.evolve(leader_epoch=2))
    yield replace(world, stale_view=tuple(board.tasks.values()))


# ---- what must never be untrue --------------------------------------------------------------------


def fault_of(world: World) -> str | None:
    board = world.board
    if world.zombie:
        return f"I4: {world.zombie}, which no longer held the task"
    homes: dict[int, int] = dict.fromkeys(range(ROWS), 0)
    for task in board.tasks.values():
        if task.state not in {TaskState.DONE, TaskState.SPLIT}:
            for row in ranges.rows_of(task.ranges):
                homes[row] += 1
    for part in board.manifest:
        for row in range(part.first_row, part.last_row + 1):
            homes[row] += 1
    if wrong := {row: n for row, n in homes.items() if n != 1}:
        return f"I1: homes of rows {wrong}"
    charged = sorted(e.txn for e in board.entries)
    if charged != sorted(f"use:{p.task}" for p in board.manifest):
        return "I2: charges and parts differ"
    held = {t.id for t in board.tasks.values() if t.state in {TaskState.RELEASED, TaskState.LEASED}}
    if set(board.reserved) != held:
        return f"I7: reserved {set(board.reserved)}, held {held}"
    return None


def explore(rules: Rules) -> tuple[int, str | None]:
    """(states seen, the first fault). Also a fault: a state from which no end can be reached without further faults."""
    first = start()
    seen: dict[object, World] = {first.key(): first}
    before: dict[object, list[object]] = {}
    todo = deque([first])
    while todo:
        world = todo.popleft()
        if fault := fault_of(world):
            return len(seen), fault
        here = world.key()
        for after, faulty in all_steps(world, rules):
            key = after.key()
            if not faulty:
                before.setdefault(key, []).append(here)
            if key not in seen:
                seen[key] = after
                todo.append(after)
    return len(seen), stuck(seen, before)


def stuck(seen: Mapping[object, World], before: Mapping[object, list[object]]) -> str | None:
    """Walk back from the ended states; whatever is not reached and may still be released is stuck."""
    reached = [k for k, w in seen.items() if ended(w)]
    done = set(reached)
    while reached:
        for key in before.get(reached.pop(), []):
            if key not in done:
                done.add(key)
                reached.append(key)
    left = [w for k, w in seen.items() if k not in done and not out_of_epochs(w)]
    return f"stuck: {left[0].board.tasks}" if left else None


def ended(world: World) -> bool:
    return all(t.state.terminal for t in world.board.tasks.values())


def out_of_epochs(world: World) -> bool:
    """The model bounds the epochs: a task that may not be released again is not stuck, it is cut off."""
    return any(t.epoch >= MAX_EPOCH and not t.state.terminal for t in world.board.tasks.values())


def test_no_reachable_state_breaks_an_invariant_or_is_stuck() -> None:
    states, fault = explore(Rules())
    assert fault is None
    assert states > 2_000


# ---- mutants --------------------------------------------------------------------------------------


def without(*names: str) -> Holds:
    """Guards that do not look at these fields."""

    def holds(guard: Guard, task: Task, job: JobState, leader: int | None) -> bool:
        blank: dict[str, object] = {name: None for name in names if name != "states"}
        if "states" in names:
            blank["states"] = frozenset(TaskState)
        return moves.holds(guard.evolve(**blank), task, job, leader)

    return holds


def only_epoch(guard: Guard, task: Task, job: JobState, leader: int | None) -> bool:
    """Compares the epoch alone where the protocol compares state, ticket or token."""
    return guard.epoch in {None, task.epoch} and (guard.jobs is None or job in guard.jobs)


def forgetting(name: str, **changes: object) -> Twist:
    return lambda move: move.evolve(**changes) if move.name == name else move


def late_children(move: Move) -> Move:
    """A drain whose child takes all of the parent's rows again."""
    if move.name != "drain":
        return move
    return move.evolve(children=tuple(c.evolve(ranges=(Range(0, ROWS),)) for c in move.children))


def unguarded(*names: str) -> Twist:
    """These moves are guarded by nothing but the task being there."""
    return lambda move: move.evolve(guard=Guard(states=frozenset(TaskState))) if move.name in names else move


MUTANTS: dict[str, Rules] = {
    "no token": Rules(holds=without("token")),
    "no state": Rules(holds=without("states")),
    "no state, no token": Rules(holds=without("states", "token")),
    "epoch alone": Rules(holds=only_epoch),
    "unguarded release": Rules(twist=unguarded("release")),
    "unguarded lease": Rules(twist=unguarded("lease")),
    "unguarded commit": Rules(twist=unguarded("commit")),
    "unguarded drain": Rules(twist=unguarded("drain")),
    "unguarded hand-back": Rules(twist=unguarded("hand_back")),
    "unguarded sweep": Rules(twist=unguarded("sweep")),
    "commit keeps the reservation": Rules(twist=forgetting("commit", closes=None)),
    "hand-back keeps the reservation": Rules(twist=forgetting("hand_back", closes=None)),
    "sweep keeps the reservation": Rules(twist=forgetting("sweep", closes=None)),
    "withdraw keeps the reservation": Rules(twist=forgetting("withdraw", closes=None)),
    "release reserves nothing": Rules(twist=forgetting("release", reserve_pico=None)),
    "commit without its charge": Rules(twist=forgetting("commit", entries=())),
    "commit without its part": Rules(twist=forgetting("commit", part=None)),
    "drain without children": Rules(twist=forgetting("drain", children=())),
    "divide without children": Rules(twist=forgetting("divide", children=())),
    "drain's child takes too much": Rules(twist=late_children),
    "release without a message": Rules(twist=forgetting("release", message=None)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_weakening_is_found(name: str) -> None:
    _, fault = explore(MUTANTS[name])
    assert fault is not None
