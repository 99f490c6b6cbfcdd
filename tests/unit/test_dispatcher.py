"""workers/dispatcher.py: from a topic to a lease, over a broker and a database in memory."""

import pytest

from infra.clocks import ManualClock, SeededIds
from jobs import moves
from jobs.errors import DatabaseUnavailable
from jobs.model import JobState, Priority, TaskState
from jobs.ports.queue import Outgoing
from jobs.topics import topics_of
from tests.support.store import a_store
from tests.support.topics import MemoryQueue
from tests.support.values import a_job, a_message, a_released_task
from workers import wire
from workers.dispatcher import Dispatcher, DispatchPolicy
from workers.letters import CODE, ORIGIN, PLACE, REASON

pytestmark = pytest.mark.unit

NORMAL = "nightmill.pool.normal"
DEAD = "nightmill.dead"


class Desk:
    """Two released tasks, `j.0` and `j.1`, and a dispatcher with room for both."""

    def __init__(self, at_once=1):
        tasks = [a_released_task(), a_released_task(id="j.1", ticket="ticket-2")]
        self.store = a_store(a_job(), *tasks)
        self.broker, self.clock, self.accepted, self.has_room = MemoryQueue(), ManualClock(), [], True
        self.seats, self.refuses = 99, 0
        topics = topics_of("nightmill", ["pool"])
        self.broker.ensure_topics([*topics, DEAD])
        self.consumer = self.broker.consumer("g", list(topics))
        self.dispatcher = Dispatcher(
            store=self.store,
            broker=self.broker,
            consumer=self.consumer,
            ids=SeededIds(),
            clock=self.clock,
            priorities=topics,
            crew=self,
            policy=DispatchPolicy(dead_topic=DEAD, at_once=at_once),
        )

    def room(self, priority):
        return self.has_room

    def whom(self, wanted):
        self.asked = wanted
        return ["w" if n < self.seats else None for n in range(len(wanted))]

    def accept(self, job, task):
        if self.refuses and len(self.accepted) == self.refuses:
            self.refuses = 0
            raise DatabaseUnavailable(where="it", reason="away, as the task is given back")
        self.accepted.append((job, task))

    def send(self, *messages):
        for message in messages:
            self.broker.publish([wire.encode("nightmill", message)])

    def poll(self, times=1):
        for _ in range(times):
            self.dispatcher.poll_step()

    def lease(self, times=1):
        for _ in range(times):
            self.dispatcher.lease_step(wait_s=0)

    def round(self, times=1):
        for _ in range(times):
            self.poll()
            self.lease()
            self.poll()

    def take(self):
        """The next message out of the lease thread's hands."""
        taken = self.dispatcher._to_lease.get()
        self.dispatcher._undecided.discard(taken.token)
        return taken

    def committed(self, topic=NORMAL):
        return self.broker.committed("g", topic, 0)


FIRST = a_message()
SECOND = a_message(task="j.1", ticket="ticket-2")


def test_a_released_task_is_leased_for_the_worker_and_handed_over():
    desk = Desk()
    desk.send(FIRST)
    desk.round()
    task = desk.store.board.tasks["j.0"]
    assert (task.state, task.owner, task.lease_until) == (TaskState.LEASED, "w", 30.0)
    assert desk.accepted == [(a_job(), task)]
    assert (desk.committed(), dict(desk.dispatcher.dropped)) == (1, {})


def test_polling_touches_no_database():
    desk = Desk()
    desk.send(FIRST)
    desk.poll(3)
    assert desk.store.calls == 0


def test_an_offset_is_committed_only_after_the_database_has_answered():
    desk = Desk()
    desk.send(FIRST)
    desk.poll(3)
    assert desk.committed() is None
    desk.lease()
    assert desk.committed() is None
    desk.poll()
    assert desk.committed() == 1


def test_it_is_committed_though_the_work_has_not_begun():
    desk = Desk()
    desk.send(FIRST, SECOND)
    desk.round(2)
    assert (desk.committed(), desk.store.states()) == (2, dict.fromkeys(["j.0", "j.1"], TaskState.LEASED))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(a_message(epoch=2), "epoch", id="another epoch"),
        pytest.param(a_message(ticket="old"), "ticket", id="another ticket"),
        pytest.param(a_message(pool="other"), "pool", id="another pool"),
        pytest.param(a_message(task="j.9"), "unknown", id="an unknown task"),
    ],
)
def test_a_stale_message_is_dropped_counted_by_its_reason_and_finished(message, reason):
    desk = Desk()
    desk.broker.publish([wire.encode("nightmill", message).evolve(topic=NORMAL)])
    before = desk.store.board
    desk.round()
    assert (desk.store.board, desk.accepted) == (before, [])
    assert (desk.committed(), dict(desk.dispatcher.dropped)) == (1, {reason: 1})


@pytest.mark.parametrize("state", [s for s in TaskState if s is not TaskState.RELEASED])
def test_a_message_of_a_task_that_is_not_released_any_more_is_stale(state):
    desk = Desk()
    desk.store.board = desk.store.board.evolve(tasks={"j.0": a_released_task(state=state)})
    desk.send(FIRST)
    desk.round()
    assert (desk.accepted, dict(desk.dispatcher.dropped)) == ([], {"state": 1})


def test_a_message_that_comes_twice_leases_once():
    desk = Desk()
    desk.send(FIRST, FIRST)
    desk.round(2)
    assert [task.id for _, task in desk.accepted] == ["j.0"]
    assert (desk.committed(), dict(desk.dispatcher.dropped)) == (2, {"state": 1})


def test_an_unreadable_message_goes_to_the_dead_letters_with_its_bytes_and_is_finished():
    desk = Desk()
    bad = Outgoing(topic=NORMAL, key=b"k", value=b"\xffnot ours", headers=(("trace", b"1"),))
    desk.broker.publish([bad])
    desk.send(FIRST)
    desk.round(2)
    reason = b"not a task message: UnicodeDecodeError('utf-8', b'\\xffnot ours', 0, 1, 'invalid start byte')"
    why = (("trace", b"1"), (ORIGIN, NORMAL.encode()), (PLACE, b"0:0"), (CODE, b"unreadable"), (REASON, reason))
    assert desk.broker.topics[DEAD] == [bad.evolve(topic=DEAD, headers=why)]
    assert [task.id for _, task in desk.accepted] == ["j.0"]
    assert (desk.committed(), dict(desk.dispatcher.dropped)) == (2, {"unreadable": 1})


@pytest.mark.parametrize("fault", ["the broker is away", "its topic was deleted"])
def test_dead_letters_are_sent_in_the_end_and_finished_only_then(fault):
    desk = Desk()
    desk.broker.publish([Outgoing(topic=NORMAL, key=b"k", value=b"?")])
    if fault == "the broker is away":
        desk.broker.away = 2
    else:
        desk.broker.delete_topic(DEAD)
    desk.poll()
    while not desk.broker.topics.get(DEAD):
        assert desk.committed() is None
        desk.lease()
        desk.poll()
    assert (len(desk.broker.topics[DEAD]), desk.committed(), desk.accepted) == (1, 1, [])


def test_while_the_database_is_away_the_message_is_kept_the_topics_paused_and_polling_goes_on():
    desk = Desk()
    desk.store.away = 3
    desk.send(FIRST, SECOND)
    desk.poll()
    for _ in range(3):
        desk.lease()
        desk.poll()
    assert (desk.committed(), desk.accepted, desk.consumer.position[NORMAL]) == (None, [], 1)
    assert desk.consumer.paused == desk.consumer.assigned()
    assert desk.clock.monotonic() == 3 * 0.5
    desk.lease()
    desk.round()
    assert [task.id for _, task in desk.accepted] == ["j.0", "j.1"]
    assert desk.committed() == 2


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"lost_answers": 1}, id="the answer of the move"),
        pytest.param({"away_at": frozenset({2})}, id="the task and its job"),
    ],
)
def test_a_lease_of_which_something_was_not_heard_is_known_again_as_our_own(fault):
    desk = Desk()
    vars(desk.store).update(fault)
    desk.send(FIRST)
    desk.poll()
    desk.lease()
    assert (desk.accepted, desk.store.board.tasks["j.0"].state) == ([], TaskState.LEASED)
    desk.lease()
    assert [task.id for _, task in desk.accepted] == ["j.0"]
    assert dict(desk.dispatcher.dropped) == {}


def test_without_room_the_topics_are_paused_and_nothing_is_taken():
    desk = Desk()
    desk.has_room = False
    desk.send(FIRST)
    desk.round()
    assert (desk.consumer.paused, desk.consumer.position) == (desk.consumer.assigned(), {})
    desk.has_room = True
    desk.round()
    assert (desk.consumer.paused, [task.id for _, task in desk.accepted]) == (frozenset(), ["j.0"])


def test_no_second_message_is_polled_while_the_first_waits_for_its_lease():
    desk = Desk()
    desk.send(FIRST, SECOND)
    desk.poll(5)
    assert desk.consumer.position[NORMAL] == 1


def test_every_priority_of_the_pool_is_polled():
    desk = Desk()
    desk.send(a_message(priority=Priority.CRITICAL), SECOND.evolve(priority=Priority.BATCH))
    desk.round(2)
    assert sorted(task.id for _, task in desk.accepted) == ["j.0", "j.1"]
    assert (desk.committed("nightmill.pool.critical"), desk.committed("nightmill.pool.batch")) == (1, 1)


def test_an_answer_for_a_topic_that_was_made_anew_does_not_finish_its_new_records():
    """The old record is answered after the new topic's first was taken; that one must still hold its offset."""
    desk = Desk()
    desk.send(FIRST)
    desk.poll()
    desk.broker.make_anew(NORMAL, "new")
    desk.consumer.rewind(NORMAL)
    desk.send(SECOND, a_message(task="j.9"))
    old = desk.take()
    desk.poll()
    new = desk.take()
    desk.dispatcher._offsets.finish(old.record.place)
    desk.poll()
    stale = desk.take()
    desk.dispatcher._offsets.finish(stale.record.place)
    desk.poll()
    assert (new.message, desk.committed()) == (SECOND, None)
    desk.dispatcher._offsets.finish(new.record.place)
    desk.poll()
    assert desk.committed() == 2


def test_messages_polled_again_after_a_rebalance_repeat_nothing():
    desk = Desk()
    desk.send(FIRST, SECOND)
    desk.poll()
    desk.consumer.rewind(NORMAL)
    desk.lease()
    desk.round(3)
    assert [task.id for _, task in desk.accepted] == ["j.0", "j.1"]
    assert desk.committed() == 2


def test_a_withdrawn_and_released_task_is_leased_by_its_new_message_only():
    desk = Desk()
    board = desk.store.board
    board, _ = board.make(moves.withdraw(board.tasks["j.0"]))
    release = moves.release(board.tasks["j.0"], ticket="new", reserve_pico=1, leader=("pool", 1))
    desk.store.board, _ = board.make(release)
    desk.send(FIRST, release.message)
    desk.round(2)
    assert [(task.id, task.epoch) for _, task in desk.accepted] == [("j.0", 2)]
    assert dict(desk.dispatcher.dropped) == {"epoch": 1}


def test_a_job_that_is_ending_still_gets_its_leases_so_that_the_worker_learns_of_it():
    desk = Desk()
    desk.store.set_job_state(JobState.CANCELLING)
    desk.send(FIRST)
    desk.round()
    assert [(job.state, task.id) for job, task in desk.accepted] == [(JobState.CANCELLING, "j.0")]


def test_a_pool_has_a_topic_for_each_priority():
    assert topics_of("n", ["a", "b"]) == {
        f"n.{pool}.{priority}": priority for pool in ["a", "b"] for priority in Priority
    }


def test_a_dispatcher_with_nothing_to_do_does_nothing():
    desk = Desk()
    desk.round(3)
    assert (desk.accepted, desk.committed(), desk.store.board.tasks["j.0"]) == ([], None, a_released_task())


def test_a_task_is_handed_over_with_the_time_of_its_release_if_the_message_tells_it():
    desk = Desk()
    desk.broker.publish([wire.encode("nightmill", FIRST, released_at=1234.5678)])
    desk.send(SECOND)
    desk.round(2)
    assert ([task.released_at for _, task in desk.accepted], desk.dispatcher.leased) == ([1234.568, None], 2)


def test_messages_that_are_polled_together_are_leased_in_one_move_and_finished_together():
    desk = Desk(at_once=9)
    desk.send(FIRST, SECOND)
    desk.poll()
    desk.lease()
    assert ([task.id for _, task in desk.accepted], desk.store.calls) == (["j.0", "j.1"], 3)
    desk.poll()
    assert desk.committed() == 2


def test_of_those_polled_together_the_most_urgent_is_first_to_find_room_and_the_rest_waits_paused():
    desk = Desk(at_once=9)
    desk.seats = 1
    desk.send(FIRST.evolve(priority=Priority.BATCH), SECOND.evolve(priority=Priority.CRITICAL))
    desk.poll()
    desk.lease()
    desk.poll()
    assert [task.id for _, task in desk.accepted] == ["j.1"]
    assert (desk.committed("nightmill.pool.critical"), desk.committed("nightmill.pool.batch")) == (1, None)
    assert desk.consumer.paused == {("nightmill.pool.batch", 0)}
    desk.round()
    assert [task.id for _, task in desk.accepted] == ["j.1", "j.0"]
    assert (desk.committed("nightmill.pool.batch"), desk.consumer.paused) == (1, frozenset())


def test_a_stale_message_among_others_costs_them_nothing():
    desk = Desk(at_once=9)
    desk.send(a_message(task="j.9"), FIRST, FIRST, SECOND.evolve(ticket="old"))
    desk.round()
    assert [task.id for _, task in desk.accepted] == ["j.0"]
    assert (desk.committed(), dict(desk.dispatcher.dropped)) == (4, {"unknown": 1, "ticket": 1, "state": 1})


def test_a_failure_between_two_hand_overs_hands_no_task_over_twice():
    desk = Desk(at_once=9)
    desk.refuses = 1
    desk.send(FIRST, SECOND)
    desk.poll()
    desk.lease()
    assert [task.id for _, task in desk.accepted] == ["j.0"]
    desk.lease()
    desk.poll()
    assert ([task.id for _, task in desk.accepted], desk.committed()) == (["j.0", "j.1"], 2)
