"""jobs/moves.py: what each move asks for and what it leaves behind."""

import pytest

from jobs import moves
from jobs.model import JobState, Message, Priority, Source, TaskState, VoidReason
from jobs.moves import Group, Guard, Lease, Waste
from tests.support.values import a_leased_task, a_message, a_part, a_released_task, a_task, a_usage, span

pytestmark = pytest.mark.unit

GRANT = Lease(token="token-2", owner="w2", lease_s=30.0)
WASTE = Waste(cause="drain")
LEASED = frozenset({TaskState.LEASED})


def a_commit(task, **part):
    return moves.commit(task, part=a_part(task, **part), usage=a_usage(), entries=())


# ---- what a task is afterwards --------------------------------------------------------------------


def test_a_release_opens_an_epoch_with_a_ticket_of_its_own_and_its_message():
    task = a_task(epoch=3, priority=Priority.HIGH)
    move = moves.release(task, ticket="ticket-4", reserve_pico=9, leader=("pool", 2))
    assert move.message == Message(task="j.0", epoch=4, ticket="ticket-4", pool="pool", priority=Priority.HIGH)
    assert moves.after(task, move, now=0.0) == task.evolve(state=TaskState.RELEASED, epoch=4, ticket="ticket-4")


def test_a_lease_gives_a_token_and_an_end_by_the_databases_clock():
    task = a_released_task()
    assert moves.after(task, moves.lease(a_message(), GRANT), now=100.0) == task.evolve(
        state=TaskState.LEASED, token="token-2", owner="w2", lease_until=130.0
    )


def test_a_withdrawn_task_is_queued_as_it_was_but_for_its_epoch():
    task = a_released_task()
    assert moves.after(task, moves.withdraw(task), now=0.0) == a_task(epoch=1)


def test_a_task_handed_back_keeps_its_suspicion_unless_told_otherwise():
    task = a_leased_task(suspect=True, alone_deaths=1)
    queued = a_task(epoch=1, suspect=True, alone_deaths=1)
    assert moves.after(task, moves.hand_back(task, WASTE), now=0.0) == queued
    struck = moves.hand_back(task, WASTE, alone_deaths=2)
    assert moves.after(task, struck, now=0.0) == queued.evolve(alone_deaths=2)
    fresh = a_leased_task()
    assert moves.after(fresh, moves.hand_back(fresh, WASTE, suspect=True), now=0.0) == a_task(epoch=1, suspect=True)


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (a_commit, TaskState.DONE),
        (lambda t: moves.drain(t, [], part=a_part(t), usage=a_usage(), entries=()), TaskState.SPLIT),
        (lambda t: moves.divide(t, [], WASTE), TaskState.SPLIT),
    ],
)
def test_an_ended_task_remembers_the_token_that_ended_it(make, state):
    task = a_leased_task()
    ended = task.evolve(state=state, ticket=None, lease_until=None)
    assert moves.after(task, make(task), now=0.0) == ended


def test_a_void_task_says_why():
    queued, leased = a_task(), a_leased_task()
    swept = moves.after(queued, moves.sweep(queued, VoidReason.EXPIRED), now=0.0)
    assert swept == queued.evolve(state=TaskState.VOID, void_reason=VoidReason.EXPIRED)
    dead = moves.after(leased, moves.void_leased(leased, VoidReason.DEAD, WASTE), now=0.0)
    assert dead == leased.evolve(state=TaskState.VOID, void_reason=VoidReason.DEAD, ticket=None, lease_until=None)


# ---- guards ---------------------------------------------------------------------------------------


def test_every_guard_compares_the_state_and_a_token_or_ticket():
    queued, released, leased = a_task(epoch=3), a_released_task(epoch=4), a_leased_task()
    running, ending = frozenset({JobState.RUNNING}), frozenset({JobState.CANCELLING, JobState.EXPIRING})
    held = Guard(states=LEASED, token="token-1")
    guards = {
        "release": moves.release(queued, ticket="t", reserve_pico=1, leader=("pool", 2)).guard,
        "withdraw": moves.withdraw(released).guard,
        "lease": moves.lease(a_message(), GRANT).guard,
        "commit": a_commit(leased).guard,
        "drain": moves.drain(leased, [], part=a_part(leased), usage=a_usage(), entries=()).guard,
        "divide": moves.divide(leased, [], WASTE).guard,
        "hand_back": moves.hand_back(leased, WASTE).guard,
        "sweep": moves.sweep(queued, VoidReason.CANCELLED).guard,
        "void_leased": moves.void_leased(leased, VoidReason.CANCELLED, WASTE).guard,
        "void_dead": moves.void_leased(leased, VoidReason.DEAD, WASTE).guard,
    }
    assert guards == {
        "release": Guard(states=frozenset({TaskState.QUEUED}), epoch=3, jobs=running, leader=("pool", 2)),
        "withdraw": Guard(states=frozenset({TaskState.RELEASED}), epoch=4, ticket="ticket-1"),
        "lease": Guard(states=frozenset({TaskState.RELEASED}), epoch=1, ticket="ticket-1", pool="pool"),
        "commit": held,
        "drain": held,
        "divide": held,
        "hand_back": held,
        "sweep": Guard(states=frozenset({TaskState.QUEUED, TaskState.RELEASED}), jobs=ending),
        "void_leased": held.evolve(jobs=ending),
        "void_dead": held,
    }


def test_a_move_of_a_lease_that_was_never_had_cannot_even_be_made():
    with pytest.raises(AssertionError, match="would take anyone's lease"):
        moves.hand_back(a_task(), WASTE)
    with pytest.raises(AssertionError, match="would take back anyone's release"):
        moves.withdraw(a_task())


@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(Guard(states=frozenset({TaskState.QUEUED})), id="another state"),
        pytest.param(Guard(states=LEASED, epoch=2), id="another epoch"),
        pytest.param(Guard(states=LEASED, ticket="ticket-2"), id="another ticket"),
        pytest.param(Guard(states=LEASED, token="token-2"), id="another token"),
        pytest.param(Guard(states=LEASED, pool="other"), id="another pool"),
        pytest.param(Guard(states=LEASED, jobs=frozenset({JobState.PAUSED})), id="another state of the job"),
        pytest.param(Guard(states=LEASED, leader=("pool", 2)), id="another leadership"),
    ],
)
def test_a_guard_does_not_hold_against(guard):
    assert not moves.holds(guard, a_leased_task(), JobState.RUNNING, 1)


def test_a_guard_holds_when_all_it_looks_at_agrees():
    guard = Guard(
        states=LEASED,
        epoch=1,
        ticket="ticket-1",
        token="token-1",
        pool="pool",
        jobs=frozenset({JobState.RUNNING}),
        leader=("pool", 1),
    )
    assert moves.holds(guard, a_leased_task(), JobState.RUNNING, 1)
    assert not moves.holds(guard, a_leased_task(token=None), JobState.RUNNING, 1)
    assert not moves.holds(guard, a_leased_task(), JobState.RUNNING, None)


# ---- a lost answer --------------------------------------------------------------------------------


def test_a_commit_is_known_again_by_its_token_its_end_and_its_part():
    task = a_leased_task()
    move, done = a_commit(task), task.evolve(state=TaskState.DONE)
    assert moves.same_as_before(move, done, [a_part(task)])
    assert not moves.same_as_before(move, done, [])
    assert not moves.same_as_before(move, done, [a_part(task, checksum="another")])
    assert not moves.same_as_before(move, done, [a_part(task, uri="another")])
    assert not moves.same_as_before(move, done.evolve(token="token-2"), [a_part(task)])
    assert not moves.same_as_before(move, task, [a_part(task)])
    assert not moves.same_as_before(move, task.evolve(state=TaskState.SPLIT), [a_part(task)])


def test_a_lease_is_known_again_by_its_token():
    move, leased = moves.lease(a_message(), GRANT), a_leased_task(token="token-2")
    assert moves.same_as_before(move, leased, [])
    assert not moves.same_as_before(move, leased.evolve(token="token-1"), [])
    assert not moves.same_as_before(move, leased.evolve(state=TaskState.DONE), [])


@pytest.mark.parametrize(
    ("move", "task"),
    [
        (moves.release(a_task(), ticket="ticket-1", reserve_pico=1, leader=("pool", 1)), a_released_task()),
        (moves.withdraw(a_released_task()), a_task(epoch=1)),
        (moves.hand_back(a_leased_task(), WASTE), a_task(epoch=1)),
        (moves.sweep(a_task(), VoidReason.CANCELLED), a_task(state=TaskState.VOID)),
    ],
)
def test_a_move_that_leaves_no_token_is_not_known_again(move, task):
    assert not moves.same_as_before(move, task, [])


# ---- children -------------------------------------------------------------------------------------


def test_a_child_is_a_queued_slice_of_its_parent_with_its_share_of_the_estimate_rounded_up():
    parent = a_leased_task(
        ranges=span(0, 3),
        segment=4,
        priority=Priority.HIGH,
        source=Source(staged="s3://x", row_group=2),
        est_input_tokens=100,
        est_output_tokens=10,
        alone_deaths=1,
    )
    assert moves.child(parent, 1, span(2, 3), suspect=True) == a_task(
        id="j.0.1",
        parent="j.0",
        ranges=span(2, 3),
        segment=4,
        priority=Priority.HIGH,
        source=Source(staged="s3://x", row_group=2),
        est_input_tokens=34,
        est_output_tokens=4,
        suspect=True,
    )


def test_groups_without_rows_have_no_child_and_leave_no_gap_in_the_numbers():
    groups = [
        Group(rows=span(0, 2), suspect=True),
        Group(rows=(), suspect=True),
        Group(rows=span(2, 10), suspect=False),
    ]
    made = moves.children(a_leased_task(), groups)
    assert [(c.id, c.ranges, c.suspect) for c in made] == [
        ("j.0.0", span(0, 2), True),
        ("j.0.1", span(2, 10), False),
    ]
