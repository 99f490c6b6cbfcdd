"""Moves in any order, by anyone who ever held a task, over the reference board: I1, I2, I4 and I7 hold throughout.

`test_protocol_model` explores two rows exhaustively; this goes far with many rows, splits of splits and old views.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobs import ledger, moves, ranges
from jobs.board import Board
from jobs.model import JobState, Task, TaskState, VoidReason
from jobs.moves import Answer, Group, Lease, Move, Waste
from tests.support.values import a_job, a_part, a_task, a_usage, span

ROWS = 24
HELD = {TaskState.RELEASED, TaskState.LEASED}


class Protocol(RuleBasedStateMachine):
    """views: every task as anyone ever saw it; whoever moves may go by an old one. leases: every lease ever given."""

    def __init__(self) -> None:
        super().__init__()
        tasks = [a_task(id="j.0", ranges=span(0, 12)), a_task(id="j.1", ranges=span(12, ROWS))]
        self.board = Board(tasks={task.id: task for task in tasks})
        self.views = tasks
        self.leases: list[Task] = []
        self.numbers = 0

    def make(self, move: Move) -> Answer:
        before = self.board
        self.board, answer = self.board.make(move)
        if answer is Answer.MADE:
            held = before.tasks[move.task]
            assert not held.state.terminal, "an ended task moved"
            assert move.guard.token in {None, held.token}, "a dead lease had an effect"
            self.views += [task for key, task in self.board.tasks.items() if before.tasks.get(key) != task]
        else:
            assert self.board == before
        return answer

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def draw_view(self, data: st.DataObject, state: TaskState) -> Task | None:
        seen = [task for task in self.views if task.state is state]
        return data.draw(st.sampled_from(seen)) if seen else None

    def draw_lease(self, data: st.DataObject) -> Task:
        """Often the latest, so that most sequences get somewhere; any zombie else."""
        return self.leases[-1 - data.draw(st.integers(0, len(self.leases) - 1))]

    # ---- moves ----------------------------------------------------------------------------------

    @rule(data=st.data(), stale_leader=st.booleans())
    def release(self, data: st.DataObject, stale_leader: bool) -> None:
        if task := self.draw_view(data, TaskState.QUEUED):
            epoch = self.board.leader_epoch - stale_leader
            move = moves.release(task, ticket=f"t{self.number()}", reserve_pico=1, leader=("pool", epoch))
            assert not (self.make(move) is Answer.MADE and stale_leader)

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if task := self.draw_view(data, TaskState.RELEASED):
            self.make(moves.withdraw(task))

    @precondition(lambda self: self.board.outbox)
    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        message = self.board.outbox[-1 - data.draw(st.integers(0, len(self.board.outbox) - 1))]
        move = moves.lease(message, Lease(token=f"k{self.number()}", owner="w", lease_s=30))
        if self.make(move) is Answer.MADE:
            self.leases.append(self.board.tasks[message.task])
            assert self.make(move) is Answer.ALREADY

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        task = self.draw_lease(data)
        charge = ledger.charge(a_job(), task.id, a_usage(), 0.0)
        move = moves.commit(task, part=a_part(task), usage=a_usage(), entries=charge)
        if self.make(move) is Answer.MADE:
            assert self.make(move) is Answer.ALREADY

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), suspect=st.booleans())
    def split(self, data: st.DataObject, suspect: bool) -> None:
        """Some rows done (or none), the others in one or two children."""
        task = self.draw_lease(data)
        place = st.sampled_from(["part", "one", "two"])
        places = data.draw(st.lists(place, min_size=task.rows, max_size=task.rows))
        done, one, two = ([i for i, p in enumerate(places) if p == name] for name in ("part", "one", "two"))
        groups = [Group(rows=ranges.at(task.ranges, rows), suspect=suspect) for rows in (one, two)]
        if done:
            charge = ledger.charge(a_job(), task.id, a_usage(), 0.0)
            part = a_part(task, ranges.at(task.ranges, done))
            self.make(moves.drain(task, groups, part=part, usage=a_usage(), entries=charge))
        else:
            self.make(moves.divide(task, groups, Waste(cause="engine_died")))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def hand_back(self, data: st.DataObject) -> None:
        task = self.draw_lease(data)
        waste = ledger.waste(a_job(), task.id, task.epoch, "lease_lost", a_usage(), 0.0)
        self.make(moves.hand_back(task, Waste(cause="lease_lost", usage=a_usage(), entries=waste)))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), reason=st.sampled_from(VoidReason))
    def void(self, data: st.DataObject, reason: VoidReason) -> None:
        self.make(moves.void_leased(self.draw_lease(data), reason, Waste(cause="end")))

    @rule(data=st.data(), state=st.sampled_from([TaskState.QUEUED, TaskState.RELEASED]))
    def sweep(self, data: st.DataObject, state: TaskState) -> None:
        if task := self.draw_view(data, state):
            running = self.board.job_state is JobState.RUNNING
            assert not (self.make(moves.sweep(task, VoidReason.CANCELLED)) is Answer.MADE and running)

    @rule(to=st.sampled_from([JobState.RUNNING, JobState.RUNNING, JobState.CANCELLING, JobState.PAUSED]))
    def set_job_state(self, to: JobState) -> None:
        """Also back again, which no real job does: the invariants do not lean on it."""
        self.board = self.board.evolve(job_state=to)

    @rule()
    def change_leader(self) -> None:
        self.board = self.board.evolve(leader_epoch=self.board.leader_epoch + 1)

    # ---- what must never be untrue --------------------------------------------------------------

    @invariant()
    def every_row_has_exactly_one_home(self) -> None:
        homes = Counter(
            row
            for task in self.board.tasks.values()
            if task.state not in {TaskState.DONE, TaskState.SPLIT}
            for row in ranges.rows_of(task.ranges)
        )
        in_parts = sum(part.rows for part in self.board.manifest)
        assert max(homes.values(), default=0) <= 1
        assert len(homes) + in_parts == ROWS

    @invariant()
    def every_part_has_its_charge_and_every_charge_its_part(self) -> None:
        charged = Counter(entry.task for entry in self.board.entries if entry.kind == "usage" and entry.line == 0)
        assert charged == Counter(part.task for part in self.board.manifest)
        assert max(charged.values(), default=1) == 1
        ledger.check_balanced(self.board.entries)

    @invariant()
    def a_reservation_is_open_exactly_while_its_task_is_released_or_leased(self) -> None:
        held = {task.id for task in self.board.tasks.values() if task.state in HELD}
        assert set(self.board.reserved) == held


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestProtocol.pytestmark = [pytest.mark.property]
