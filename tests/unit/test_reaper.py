"""workers/reaper.Reaper: which messages are lost, and whose leases are over."""

import pytest

from infra.clocks import ManualClock
from jobs import ledger
from jobs.model import TaskState, Usage
from jobs.moves import Waste
from jobs.ports.queue import Outgoing
from jobs.ports.store import Place
from tests.support.store import a_store
from tests.support.topics import MemoryQueue
from tests.support.values import a_job, a_leased_task, a_released_task
from workers.reaper import Reaper, end_dead_owners, end_lease

pytestmark = pytest.mark.unit

TOPIC = "nightmill.pool.normal"
SPENT = Usage(rows=2, input_tokens=12, cached_tokens=8, output_tokens=10)


@pytest.fixture
def broker():
    queue = MemoryQueue()
    queue.ensure_topics([TOPIC])
    queue.publish([Outgoing(topic=TOPIC, key=b"", value=b"")] * 3)
    return queue


def reaper_of(store, broker):
    return Reaper(store=store, broker=broker, clock=ManualClock(), group="g", alive=lambda _: True)


def place(**changes):
    return Place(topic=TOPIC, topic_id=f"{TOPIC}-1", partition=0, offset=1).evolve(**changes)


def after_a_look(store, broker, where):
    """The task's state once the reaper has looked for a message published there."""
    store.now = lambda: 0.0
    store.silent = lambda *_: [(store.board.tasks["j.0"], where)]
    reaper_of(store, broker).step("pool")
    return store.board.tasks["j.0"].state


def test_a_message_that_still_waits_in_its_topic_is_left_alone(broker):
    broker.committed_offsets["g", TOPIC, 0] = 1
    assert after_a_look(a_store(a_job(), a_released_task()), broker, place()) is TaskState.RELEASED


def test_so_is_one_of_a_group_that_has_committed_nothing_yet(broker):
    assert after_a_look(a_store(a_job(), a_released_task()), broker, place()) is TaskState.RELEASED


@pytest.mark.parametrize("loss", ["topic gone", "topic made anew", "log start beyond it", "group beyond it"])
def test_a_lost_message_brings_its_task_back(broker, loss):
    match loss:
        case "topic gone":
            broker.delete_topic(TOPIC)
        case "topic made anew":
            broker.make_anew(TOPIC, "another")
        case "log start beyond it":
            broker.log_start[TOPIC] = 2
        case "group beyond it":
            broker.committed_offsets["g", TOPIC, 0] = 2
    assert after_a_look(a_store(a_job(), a_released_task()), broker, place()) is TaskState.QUEUED


def test_an_ended_lease_posts_what_was_spent_as_waste():
    store = a_store(a_job(), a_leased_task())
    store.now = lambda: 7.0
    assert end_lease(store, store.board.tasks["j.0"], SPENT, "lease_lost")
    entries = ledger.waste(a_job(), "j.0", 1, "lease_lost", SPENT, 7.0)
    assert [move.waste for move in store.made] == [Waste(cause="lease_lost", usage=SPENT, entries=entries)]


def test_a_lease_that_spent_nothing_posts_nothing():
    store = a_store(a_job(), a_leased_task())
    assert end_lease(store, store.board.tasks["j.0"], Usage(), "lease_lost")
    assert [move.waste for move in store.made] == [Waste(cause="lease_lost")]


def test_a_lease_that_was_settled_meanwhile_is_not_ended():
    store = a_store(a_job(), a_leased_task())
    seen = store.board.tasks["j.0"]
    store.take_lease_away("j.0")
    before = store.board
    assert not end_lease(store, seen, Usage(), "lease_lost")
    assert store.board == before


def test_overdue_leases_are_ended_only_after_a_whole_lease_of_watching(broker):
    store, clock = a_store(a_job(), a_leased_task()), ManualClock()
    store.now, store.silent = clock.now, lambda *_: []
    store.overdue = lambda _: [(task, Usage()) for task in store.in_state(TaskState.LEASED)]
    reaper = Reaper(store=store, broker=broker, clock=clock, group="g", alive=lambda _: True, lease_s=3.0)
    ended = []
    for _ in range(5):
        ended.append(reaper.step("pool"))
        clock.advance(1.0)
    assert ended == [0, 0, 0, 1, 0]
    assert reaper.reaped == {"worker_died": 0, "lease_lost": 1, "message_lost": 0}


def test_only_what_dead_processes_held_is_taken_back_at_once():
    here, gone = a_leased_task(id="j.0", owner="here"), a_leased_task(id="j.1", owner="gone", token="token-2")
    store = a_store(a_job(), here, gone)
    store.owners = lambda: ["here", "gone"]
    store.leased_by = lambda owner: [(t, Usage()) for t in store.board.tasks.values() if t.owner == owner]
    assert end_dead_owners(store, lambda owner: owner == "here") == 1
    assert store.states() == {"j.0": TaskState.LEASED, "j.1": TaskState.QUEUED}


def test_the_reaper_looks_for_dead_owners_at_each_step(broker):
    here, gone = a_leased_task(id="j.0", owner="here"), a_leased_task(id="j.1", owner="gone", token="token-2")
    store = a_store(a_job(), here, gone)
    store.now, store.silent = lambda: 0.0, lambda *_: []
    reaper = Reaper(store=store, broker=broker, clock=ManualClock(), group="g", alive=lambda owner: owner == "here")
    assert reaper.step("pool") == 1
    assert store.states() == {"j.0": TaskState.LEASED, "j.1": TaskState.QUEUED}
    assert reaper.reaped == {"worker_died": 1, "message_lost": 0}
