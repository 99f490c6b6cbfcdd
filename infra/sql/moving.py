"""Carries out moves: the SQL twin of `jobs.board`, held to the same answers by a property test.

It reads the tasks under a lock, decides with `jobs.moves.holds` and `jobs.moves.after` themselves, and writes
everything with one statement a table. What it read stands again in the UPDATE's condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, rows, tables
from infra.sql.rows import Standing
from jobs import moves
from jobs.errors import Broken, LedgerBroken
from jobs.ledger import Entry, check_balanced
from jobs.model import JobState, Message, Part, Task, TaskState, Usage
from jobs.moves import Answer, Guard, Move, Waste

_INT64 = 2**63
_CHUNK = 500  # names in one IN list

_tasks = tables.tasks.c
_UPDATE = tables.tasks.update().where(
    _tasks.id == sa.bindparam("was_id"),
    _tasks.state == sa.bindparam("was_state"),
    _tasks.epoch == sa.bindparam("was_epoch"),
    _tasks.ticket.is_not_distinct_from(sa.bindparam("was_ticket")),
    _tasks.token.is_not_distinct_from(sa.bindparam("was_token")),
)  # sets the columns that its parameters name
_reservations = tables.reservations.c
_CLOSE = (
    tables.reservations.update()
    .where(
        _reservations.task == sa.bindparam("of_task"),
        _reservations.epoch == sa.bindparam("of_epoch"),
        _reservations.state == tables.literal("open"),
    )
    .values(state=sa.bindparam("closes"), closed_at=sa.bindparam("at"))
)
_UNSEND = tables.outbox.delete().where(tables.outbox.c.task == sa.bindparam("of_task"))


def make(connection: sa.Connection, wanted: Sequence[Move], now: float) -> list[Answer]:
    """An answer for each move, in order. Raises LedgerBroken for entries that do not add up."""
    answers: list[Answer] = []
    for group in _distinct(wanted):
        view = _View(connection, group)
        changes = _Changes(now=now)
        answers += [_answer(view, changes, move) for move in group]
        changes.write(connection)
    return answers


def _answer(view: _View, changes: _Changes, move: Move) -> Answer:
    standing = view.tasks.get(move.task)
    if standing is None:
        return Answer.LOST
    task, guard = standing.task, move.guard
    if moves.holds(guard, task, view.job_state(task.job, guard), view.leader_epoch(guard)):
        changes.add(standing, move)
        return Answer.MADE
    return Answer.ALREADY if moves.same_as_before(move, task, view.parts(move)) else Answer.LOST


def _distinct(wanted: Sequence[Move]) -> Iterator[list[Move]]:
    """Cut before a move of a task that the group has touched already, so that it sees what came before it."""
    group: list[Move] = []
    touched: set[str] = set()
    for move in wanted:
        if move.task in touched:
            yield group
            group, touched = [], set()
        group.append(move)
        touched |= {move.task, *(child.id for child in move.children)}
    yield group


class _View:
    """What the database says of the tasks, their jobs and the leaderships that guards ask for."""

    def __init__(self, connection: sa.Connection, group: Sequence[Move]) -> None:
        self._connection = connection
        self.tasks = self._standings(sorted({move.task for move in group}))
        named = {s.task.job for m in group if m.guard.jobs and (s := self.tasks.get(m.task))}
        self._jobs = self._locked(tables.jobs.c.id, tables.jobs.c.state, named)
        scopes = {move.guard.leader[0] for move in group if move.guard.leader}
        self._leaders = self._locked(tables.leaders.c.scope, tables.leaders.c.epoch, scopes)

    def job_state(self, job: str, guard: Guard) -> JobState:
        """Any state will do where the guard does not look at it."""
        return JobState(self._jobs[job]) if guard.jobs else JobState.RUNNING

    def leader_epoch(self, guard: Guard) -> int | None:
        return self._leaders.get(guard.leader[0]) if guard.leader else None

    def parts(self, move: Move) -> list[Part]:
        if move.part is None:
            return []
        query = sa.select(tables.parts).where(tables.parts.c.task == move.task)
        return [rows.part_of(row) for row in self._connection.execute(query)]

    def _standings(self, ids: Sequence[str]) -> dict[str, Standing]:
        """Locked in the order of their ids, so that two writers cannot wait for each other."""
        found = {}
        for at in range(0, len(ids), _CHUNK):
            these = dialect.among(self._connection, _tasks.id, ids[at : at + _CHUNK])
            query = sa.select(*rows.standing_columns).where(these).order_by(_tasks.id).with_for_update()
            for row in self._connection.execute(query):
                found[row.id] = rows.standing_of(row)
        return found

    def _locked(self, key: Any, value: Any, wanted: set[str]) -> dict[str, Any]:
        """Share-locked: these rows must not change before this transaction is through."""
        if not wanted:
            return {}
        these = dialect.among(self._connection, key, sorted(wanted))
        query = sa.select(key, value).where(these).order_by(key).with_for_update(read=True)
        return {row[0]: row[1] for row in self._connection.execute(query)}


@dataclass(slots=True, kw_only=True)
class _Changes:
    """All rows that a group of moves writes, gathered by table."""

    now: float
    inserts: dict[sa.Table, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    updates: list[dict[str, Any]] = field(default_factory=list)
    closes: list[dict[str, Any]] = field(default_factory=list)
    unsent: list[dict[str, Any]] = field(default_factory=list)
    wastes: dict[tuple[str, int, str], tuple[str, Waste]] = field(default_factory=dict)

    def add(self, standing: Standing, move: Move) -> None:
        task = standing.task
        then = moves.after(task, move, now=self.now)
        self._update(task, then, move)
        self._reserve(task, then, move)
        if task.state is TaskState.RELEASED:
            self.unsent.append({"of_task": task.id})
        self.inserts[tables.tasks] += [
            rows.task_row(child, f"{standing.position}.{number:04d}") for number, child in enumerate(move.children)
        ]
        if move.message is not None:
            self._send(move.message)
        if move.part is not None:
            self.inserts[tables.parts].append(rows.part_row(move.part, task.job, standing.position))
        if move.usage is not None:
            self._post("usage", task.job, f"use:{task.id}", move.usage, move.entries)
        if move.waste is not None:
            self.wastes[task.id, task.epoch, move.waste.cause] = task.job, move.waste

    def write(self, connection: sa.Connection) -> None:
        self._keep_new_wastes(connection)
        if self.updates and connection.execute(_UPDATE, self.updates).rowcount != len(self.updates):
            raise Broken(reason="a task changed under its lock")
        for statement, parameters in ((_UNSEND, self.unsent), (_CLOSE, self.closes)):
            if parameters:
                connection.execute(statement, parameters)
        for table, new in self.inserts.items():
            if new:
                connection.execute(table.insert(), new)

    def _update(self, task: Task, then: Task, move: Move) -> None:
        self.updates.append(
            {
                "was_id": task.id,
                "was_state": task.state.value,
                "was_epoch": task.epoch,
                "was_ticket": task.ticket,
                "was_token": task.token,
                "state": then.state.value,
                "epoch": then.epoch,
                "ticket": then.ticket,
                "token": then.token,
                "owner": then.owner,
                "lease_until": then.lease_until,
                "suspect": then.suspect,
                "alone_deaths": then.alone_deaths,
                "void_reason": then.void_reason and then.void_reason.value,
                "usage": None if move.usage is None else codec.encode(move.usage),
                "progress": None,
            }
        )

    def _reserve(self, task: Task, then: Task, move: Move) -> None:
        if move.closes and task.state in {TaskState.RELEASED, TaskState.LEASED}:
            close = {"of_task": task.id, "of_epoch": task.epoch, "closes": move.closes, "at": self.now}
            self.closes.append(close)
        if move.reserve_pico is not None:
            self.inserts[tables.reservations].append(
                {
                    "task": task.id,
                    "epoch": then.epoch,
                    "job": task.job,
                    "amount_pico": move.reserve_pico,
                    "state": "open",
                    "opened_at": self.now,
                    "closed_at": None,
                }
            )

    def _send(self, message: Message) -> None:
        self.inserts[tables.outbox].append(
            {
                "task": message.task,
                "epoch": message.epoch,
                "ticket": message.ticket,
                "pool": message.pool,
                "priority": message.priority.value,
                "created_at": self.now,
            }
        )

    def _post(self, kind: str, job: str, txn: str, usage: Usage, entries: Sequence[Entry]) -> None:
        """Entries, and the word to the folder. A transaction that is there already violates its unique key."""
        _check(txn, entries)
        self.inserts[tables.entries] += [rows.entry_row(entry) for entry in entries]
        self.inserts[tables.inbox].append(
            {
                "txn": txn,
                "kind": kind,
                "job": job,
                "usage": codec.encode(usage),
                "amount_pico": sum(e.amount_pico for e in entries if e.account.startswith("tenant:")),
                "lines": len(entries),
            }
        )

    def _keep_new_wastes(self, connection: sa.Connection) -> None:
        """A waste key that is there already is the same event told again."""
        known = set()
        if self.wastes:
            event = tables.wastes.c
            of_tasks = dialect.among(connection, event.task, sorted({task for task, _, _ in self.wastes}))
            query = sa.select(event.task, event.epoch, event.cause).where(of_tasks)
            known = {tuple(row) for row in connection.execute(query)}
        for key, (job, waste) in self.wastes.items():
            if key in known:
                continue
            task, epoch, cause = key
            new = {"task": task, "epoch": epoch, "cause": cause, "job": job, "at": self.now}
            self.inserts[tables.wastes].append(new | {"usage": codec.encode(waste.usage)})
            if waste.entries:
                self._post("waste", job, f"waste:{task}:{epoch}:{cause}", waste.usage, waste.entries)


def _check(txn: str, entries: Sequence[Entry]) -> None:
    check_balanced(entries)
    for entry in entries:
        if entry.txn != txn:
            raise LedgerBroken(reason=f"an entry of {entry.txn} was posted with {txn}")
        if not -_INT64 <= entry.amount_pico < _INT64:
            raise LedgerBroken(reason=f"an entry of {txn} is {entry.amount_pico} pico, more than 64 bits hold")
