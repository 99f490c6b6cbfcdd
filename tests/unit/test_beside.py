"""workers/worker.Worker with requests and tasks in one engine: who gets the seats."""

import pytest

from jobs.model import Priority, TaskState
from jobs.requests import End
from tests.support.bench import a_bench
from tests.support.live import Ear, a_live_request
from tests.support.values import a_task, span
from workers.doorstep import LivePolicy

pytestmark = pytest.mark.unit

BOTH = LivePolicy(kept_free=0.25, max_wait_s=600)


def a_pool(*tasks, **more):
    """A worker of eight seats that takes requests, two of them kept free."""
    return a_bench(*tasks, live=BOTH, **more)


def ask(bench, **changes):
    request, ear = a_live_request(**changes), Ear()
    bench.worker.live.enter(request, ear)
    return ear


def rows_inside(bench):
    return sum(prompt.startswith("row") for prompt in bench.engine.prompts())


def test_rows_take_all_seats_and_more_while_no_request_comes():
    bench = a_pool(a_task(ranges=span(0, 40)))
    bench.lease("j.0")
    bench.step(2)
    assert rows_inside(bench) == 14


def test_once_requests_come_rows_leave_the_kept_seats_free():
    bench = a_pool(a_task(ranges=span(0, 40)), per_poll=1)
    ear = ask(bench)
    bench.lease("j.0")
    bench.step(2)
    assert (ear.end, rows_inside(bench) + 1) == (End.DONE, 6)


def test_requests_beyond_the_kept_seats_take_those_of_rows_and_none_is_fed_while_one_waits():
    bench = a_pool(a_task(ranges=span(0, 40)), max_num_seqs=8)
    ears = [ask(bench) for _ in range(9)]
    bench.lease("j.0")
    bench.step(3)
    assert (rows_inside(bench), bench.engine.in_flight(), bench.worker.live.load().waiting) == (0, 9, 1)
    bench.engine.per_poll = 4
    bench.step()
    bench.engine.per_poll = 0
    bench.step()
    assert ([ear.end for ear in ears].count(End.DONE), rows_inside(bench)) == (4, 3)


def test_a_task_under_suspicion_waits_until_no_request_is_inside_and_then_has_the_engine_alone():
    bench = a_pool(a_task(ranges=span(0, 4), suspect=True))
    ask(bench)
    bench.step()
    bench.lease("j.0")
    bench.step(3)
    assert rows_inside(bench) == 0
    bench.engine.per_poll = 1
    bench.step()
    bench.engine.per_poll = 0
    bench.step()
    refused = ask(bench)
    bench.step()
    assert (rows_inside(bench), refused.ended.reason) == (4, "rows under suspicion run alone")


def test_a_task_under_suspicion_that_waited_long_is_let_in_before_further_requests():
    bench = a_pool(a_task(ranges=span(0, 4), suspect=True), yield_s=600.0)
    ask(bench)
    bench.step()
    bench.lease("j.0")
    bench.step(2)
    bench.clock.advance(31)
    refused = ask(bench)
    bench.engine.per_poll = 1
    bench.step()
    bench.engine.per_poll = 0
    bench.step()
    assert (refused.end, rows_inside(bench)) == (End.REFUSED, 4)


def test_a_task_that_requests_leave_no_room_goes_back_in_time():
    bench = a_pool(a_task(ranges=span(0, 40)), per_poll=0, yield_s=10.0)
    bench.lease("j.0")
    bench.step(2)
    for _ in range(9):
        ask(bench)
    bench.step(2)
    bench.engine.per_poll = 14
    bench.step()
    bench.engine.per_poll = 0
    bench.clock.advance(11)
    bench.step(3)
    children = bench.store.in_state(TaskState.QUEUED)
    assert (bench.store.states()["j.0"], [task.rows for task in children]) == (TaskState.SPLIT, [26])


def test_one_that_lends_wants_tasks_only_while_it_has_no_request():
    bench = a_pool(per_poll=1, lends=True)
    rooms = [bench.worker.room(Priority.NORMAL)]
    ear = ask(bench)
    rooms.append(bench.worker.room(Priority.NORMAL))
    bench.step()
    assert (ear.end, [*rooms, bench.worker.room(Priority.NORMAL)]) == (End.DONE, [True, False, True])


def test_the_death_of_the_engine_loses_requests_and_settles_tasks_and_both_go_on_afterwards():
    bench = a_pool(a_task(ranges=span(0, 4)), poison=("kill",), per_poll=0)
    bench.lease("j.0")
    bench.step()
    lost = ask(bench, prompt="kill")
    bench.step()
    bench.engine.per_poll = 9
    after = ask(bench)
    bench.work_off()
    assert (lost.end, after.end, bench.engine.starts) == (End.LOST, End.DONE, 2)
    assert bench.outcomes() == dict.fromkeys(range(4), "ok")


def test_a_drain_waits_for_requests_within_its_grace_and_then_posts_them():
    bench = a_pool(drain_grace_s=5.0)
    ear = ask(bench)
    bench.step()
    bench.worker.drain()
    bench.step()
    assert (ear.end, bench.worker._idle()) == (None, False)
    bench.clock.advance(6)
    bench.step()
    assert (ear.end, bench.worker._idle()) == (End.ABORTED, True)


def test_a_worker_of_a_pool_without_requests_refuses_them_by_name():
    bench = a_bench()
    assert ask(bench).ended.reason == "this worker takes no requests"
