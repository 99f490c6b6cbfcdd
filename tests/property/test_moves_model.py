"""The SQL store and the board, its reference in memory, are given the same random moves and must stay the same.

Legal moves, stale ones (built from what a task once was), duplicates, lists of several, under changing job states,
leaders and time.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from infra.clocks import ManualClock
from infra.sql import AT_ONCE, engine, open_store
from jobs import ledger, moves, ranges
from jobs.board import Board
from jobs.model import JobState, TaskState, Usage, VoidReason
from jobs.moves import Answer, Group, Lease, Waste
from jobs.ports.store import Progress
from tests.factories import a_job, a_part, a_task
from tests.support.postgres import ServersClock

pytestmark = pytest.mark.property

OPEN_STATES = [JobState.RUNNING, JobState.PAUSED, JobState.CANCELLING, JobState.EXPIRING]
HELD_MOVES = ["commit", "drain", "divide", "hand_back", "strike", "void_dead", "void_ending"]
ROWS, TASKS = 3, 2
MOST_TASKS = 12
SPLITTING = {"drain", "divide"}
counter = iter(range(10**9))


class Twins(RuleBasedStateMachine):
    """`views`: tasks as they once stood, which is all that a scheduler, worker or reaper ever knows."""

    store = None  # set by the test: one database serves all runs, each with a job of its own
    clock = None
    views = Bundle("views")

    @initialize(target=views)
    def plan(self):
        self.job = self.store.create_job(a_job(f"job-{next(counter)}"), [])
        tasks = [a_task(self.job, number, rows=ROWS) for number in range(TASKS)]
        self.store.plan_segment(self.job.id, 0, tasks, last=True)
        self.leader = self.store.lead(self.job.pool, "first")
        self.board = Board(leader_epoch=self.leader.epoch, tasks={t.id: t for t in tasks})
        self.tokens = iter(range(10**9))
        self.made = []
        return multiple(*tasks)

    def both(self, wanted):
        answers = self.store.make(wanted)
        self.board = self.board.evolve(now=self.clock.now())
        expected = []
        for move in wanted:
            self.board, answer = self.board.make(move)
            expected.append(answer)
        assert answers == expected
        touched = {move.task for move, answer in zip(wanted, answers, strict=True) if answer is Answer.MADE}
        self.made += wanted
        return [t for t in self.board.tasks.values() if t.id in touched or t.parent in touched]

    # ---- moves ----------------------------------------------------------------------------------

    @rule(target=views, task=views, stale=st.integers(0, 3))
    def release(self, task, stale):
        return self.step(task, lambda t: self.a_release(t, self.leader.epoch - (stale == 3)))

    @rule(target=views, task=views, wrong_pool=st.integers(0, 3))
    def lease(self, task, wrong_pool):
        return self.step(task, lambda t: self.a_lease(t, "elsewhere" if wrong_pool == 3 else t.pool))

    @rule(target=views, task=views)
    def bring_to_the_engine(self, task):
        return multiple(*self.brought(task))

    @rule(target=views, task=views)
    def withdraw(self, task):
        return self.step(task, lambda t: moves.withdraw(t) if t.ticket else None)

    @rule(target=views, task=views)
    def sweep(self, task):
        return self.step(task, lambda t: moves.sweep(t, VoidReason.CANCELLED))

    @rule(target=views, task=views, kind=st.sampled_from(HELD_MOVES), done=st.integers(0, ROWS))
    def settle(self, task, kind, done):
        self.brought(task)  # so that runs of few steps come to the ends of tasks too
        return self.step(task, lambda t: self.a_settling(t, kind, done))

    @rule(target=views, task=views, kind=st.sampled_from(HELD_MOVES), done=st.integers(0, ROWS))
    def settle_by_a_zombie(self, task, kind, done):
        """By whoever held the task when it stood so."""
        move = self.a_settling(task, kind, done)
        return multiple(*(self.both([move]) if move else []))

    @rule(target=views, picks=st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
    def again(self, picks):
        """Old moves, repeated in lists."""
        wanted = [self.made[pick % len(self.made)] for pick in picks] if self.made else []
        if len(self.board.tasks) > MOST_TASKS:
            wanted = [move for move in wanted if not move.children]
        return multiple(*self.both(wanted))

    def step(self, task, build):
        return multiple(*self.stepped(task, build))

    def stepped(self, task, build):
        """Make a move of the task as it stands now."""
        move = build(self.board.tasks[task.id])
        return self.both([move]) if move else []

    def brought(self, task):
        """Release and lease a task that is queued."""
        self.stepped(task, lambda t: self.a_release(t, self.leader.epoch))
        return self.stepped(task, lambda t: self.a_lease(t, t.pool))

    def a_release(self, task, leader_epoch):
        leader = (self.leader.scope, leader_epoch)
        return moves.release(task, ticket=f"ticket-{next(self.tokens)}", reserve_pico=task.rows, leader=leader)

    def a_lease(self, task, pool):
        if task.ticket is None:
            return None
        message = moves.Message(task=task.id, epoch=task.epoch, ticket=task.ticket, pool=pool, priority=task.priority)
        return moves.lease(message, Lease(token=f"token-{next(self.tokens)}", owner=self.job.id, lease_s=30.0))

    def a_settling(self, task, kind, done):
        """None for a task that nobody holds, or where there would be too many."""
        if task.state is not TaskState.LEASED or (kind in SPLITTING and len(self.board.tasks) > MOST_TASKS):
            return None
        done = task.rows if kind == "commit" else min(done, task.rows - 1)
        usage = Usage(rows=done, input_tokens=7 * done, output_tokens=done, outcomes={"ok": done} if done else {})
        charge = ledger.charge(self.job, task.id, usage, 1.0)
        part = a_part(task, usage=usage)
        entries = ledger.waste(self.job, task.id, task.epoch, kind, usage, 2.0) if done else ()
        waste = Waste(cause=kind, usage=usage, entries=entries)
        left = ranges.nth(task.ranges, done if kind == "drain" else 0, task.rows)
        groups = [Group(rows=rows, suspect=bool(done % 2)) for rows in ranges.halves(left)]
        return {
            "commit": lambda: moves.commit(task, part=part, usage=usage, entries=charge),
            "drain": lambda: moves.drain(task, groups, part=part, usage=usage, entries=charge, waste=waste),
            "divide": lambda: moves.divide(task, groups, waste),
            "hand_back": lambda: moves.hand_back(task, waste),
            "strike": lambda: moves.hand_back(task, waste, suspect=True, alone_deaths=task.alone_deaths + 1),
            "void_dead": lambda: moves.void_leased(task, VoidReason.DEAD, waste),
            "void_ending": lambda: moves.void_leased(task, VoidReason.EXPIRED, waste),
        }[kind]()

    # ---- the world ------------------------------------------------------------------------------

    @rule(state=st.sampled_from(OPEN_STATES))
    def job_enters(self, state):
        self.store.set_state(self.job.id, expect=frozenset(JobState), to=state)
        self.board = self.board.evolve(job_state=state)

    @rule()
    def depose(self):
        self.leader = self.store.lead(self.job.pool, "next")
        self.board = self.board.evolve(leader_epoch=self.leader.epoch)

    @rule(seconds=st.floats(0.0, 60.0))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def fold(self):
        self.store.fold()

    @rule(task=views)
    def beat(self, task):
        """Extends a lease whose token is alive, and nothing else."""
        token = task.token or "nobody"
        held = {t.token for t in self.board.tasks.values() if t.state is TaskState.LEASED}
        answer = self.store.beat(self.job.id, [Progress(token=token, usage=Usage(rows=1))], 30.0)
        assert answer == ({token: self.board.job_state} if token in held else {})
        until = self.clock.now() + 30.0
        changed = {t.id: t.evolve(lease_until=until) for t in self.board.tasks.values() if t.token in answer}
        self.board = self.board.evolve(tasks={**self.board.tasks, **changed})

    # ---- what must be the same ------------------------------------------------------------------

    @invariant()
    def tasks_are_the_same(self):
        assert {t.id: t for t in self.store.tasks(self.job.id, frozenset(TaskState))} == self.board.tasks

    @invariant()
    def reservations_are_the_same_and_those_of_open_tasks(self):
        working = {t.id for t in self.board.tasks.values() if t.state in {TaskState.RELEASED, TaskState.LEASED}}
        assert self.store.open_reservations(self.job.id) == self.board.reserved
        assert self.board.reserved.keys() == working

    @invariant()
    def the_outbox_holds_the_messages_of_released_tasks(self):
        """The store drops a message with its release; the board keeps all."""
        tickets = {t.ticket for t in self.board.tasks.values() if t.state is TaskState.RELEASED}
        alive = [message for message in self.board.outbox if message.ticket in tickets]
        assert [row.message for row in self.store.pending(1000, self.job.pool)] == alive

    @invariant()
    def the_manifest_and_the_book_are_the_same(self):
        assert sorted(self.store.parts(self.job.id), key=str) == sorted(self.board.manifest, key=str)
        entries = list(self.store.entries(job_id=self.job.id))
        assert sorted(entries, key=str) == sorted(self.board.entries, key=str)

    @invariant()
    def every_row_is_in_one_place(self):
        """I1, as the database has it: on the manifest, in an open task, or in a void one."""
        committed = {part.task: part.rows for part in self.board.manifest}
        rest = [t.rows for t in self.board.tasks.values() if t.state not in {TaskState.SPLIT, TaskState.DONE}]
        assert sum(committed.values()) + sum(rest) == ROWS * TASKS
        assert len(committed) == len(self.board.manifest)


@pytest.fixture
def sqlite(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "PRAGMAS", [p.replace("= FULL", "= OFF") for p in engine.PRAGMAS])  # no power cut here
    return tmp_path, ManualClock()


@pytest.fixture
def on_server(postgres):
    clock = ServersClock()
    with postgres.database() as database:
        yield database.url_of_clock(clock), clock


@pytest.mark.parametrize(("place", "examples"), [("sqlite", 25), ("on_server", 8)])
def test_the_store_makes_the_same_moves_as_the_board(request, place, examples):
    where, Twins.clock = request.getfixturevalue(place)
    Twins.store = open_store(where, clock=Twins.clock, pace=AT_ONCE)
    try:
        run_state_machine_as_test(
            Twins,
            settings=settings(
                max_examples=examples,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        assert Twins.store.verify().faults == ()
    finally:
        Twins.store.close()
