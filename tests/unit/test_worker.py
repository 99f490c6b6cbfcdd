"""workers/worker.py: one engine kept full, step by step, without threads or time that passes by itself.

The engine has eight seats, so at most 14 rows are inside. `per_poll` rows are finished in each step.
"""

import pytest

from jobs import ledger, ranges
from jobs.errors import EngineStartFailed, InputChanged
from jobs.model import JobState, Outcome, Priority, TaskState, VoidReason
from tests.support.bench import a_bench
from tests.support.values import a_task, span

pytestmark = pytest.mark.unit


def task_of(number, start, stop, **changes):
    return a_task(id=f"j.{number}", ranges=span(start, stop), **changes)


def rows(*numbers):
    return frozenset(f"row {n}" for n in numbers)


def ok(*numbers):
    return dict.fromkeys(numbers, Outcome.OK)


def children(bench, parent):
    return {c.id: (c.ranges, c.suspect) for c in bench.store.board.tasks.values() if c.parent == parent}


# ---- feeding --------------------------------------------------------------------------------------


def test_a_task_is_worked_off_and_committed():
    bench = a_bench(task_of(0, 0, 30), per_poll=5)
    bench.work_off()
    assert bench.outcomes() == ok(*range(30))
    assert bench.store.states() == {"j.0": TaskState.DONE}
    assert (bench.worker.tally.rows, bench.worker.tally.spent.output_tokens) == (30, 150)


def test_the_window_is_full_and_never_more_than_full():
    bench = a_bench(*[task_of(n, 50 * n, 50 * n + 50) for n in range(4)], per_poll=3)
    bench.work_off()
    assert bench.engine.most == 14
    assert bench.outcomes() == ok(*range(200))


def test_the_next_tasks_rows_enter_while_the_last_rows_of_the_one_before_still_run():
    bench = a_bench(task_of(0, 0, 16), task_of(1, 16, 30), per_poll=4)
    bench.lease("j.0")
    bench.lease("j.1")
    bench.step(3)
    assert bench.engine.crowds[-1] == rows(*range(8, 22))
    assert bench.store.states()["j.0"] is TaskState.LEASED


def test_a_more_urgent_task_enters_before_the_waiting_rows_of_one_that_came_first():
    bench = a_bench(task_of(0, 0, 30), task_of(1, 30, 34, priority=Priority.CRITICAL), per_poll=4)
    bench.lease("j.0")
    bench.step()
    bench.lease("j.1")
    bench.step()
    assert bench.engine.prompts() == rows(*range(8, 14), *range(30, 34))


def test_urgent_rows_enter_a_full_engine_and_leave_a_lower_rank_its_seat():
    urgent = task_of(1, 100, 200, priority=Priority.CRITICAL)
    bench = a_bench(task_of(0, 0, 100, priority=Priority.BATCH), urgent)
    bench.lease("j.0")
    bench.step()
    bench.lease("j.1")
    bench.step()
    assert bench.engine.prompts() == rows(*range(15), *range(100, 113))


def test_there_is_room_until_two_windows_of_rows_wait():
    bench = a_bench(task_of(0, 0, 27), task_of(1, 27, 28), per_poll=14)
    assert bench.worker.room()
    bench.lease("j.0")
    assert bench.worker.room()
    bench.lease("j.1")
    assert not bench.worker.room()
    bench.step()
    assert bench.worker.room()


def test_rows_that_cannot_be_rendered_take_no_seat_and_leave_their_room():
    faulty = range(1, 40)
    bench = a_bench(task_of(0, 0, 40), per_poll=10, faulty=tuple(faulty))
    bench.lease("j.0")
    assert not bench.worker.room()
    bench.step()
    assert bench.engine.crowds == [rows(0)]
    assert bench.outcomes() == ok(0) | dict.fromkeys(faulty, Outcome.ERROR)
    assert bench.worker.room()


def test_an_input_that_changed_ends_the_worker_with_the_reason():
    bench = a_bench(task_of(0, 0, 6))
    bench.source.broken = InputChanged(file="x.parquet", reason="other bytes")
    bench.lease("j.0")
    with pytest.raises(InputChanged):
        bench.worker.run()


# ---- suspects -------------------------------------------------------------------------------------


def test_a_suspect_is_alone_in_the_engine():
    bench = a_bench(task_of(0, 0, 20), task_of(1, 20, 23, suspect=True), task_of(2, 23, 40), per_poll=3)
    bench.work_off()
    suspects = rows(20, 21, 22)
    crowds = [crowd for crowd in bench.engine.crowds if crowd & suspects]
    assert crowds == [suspects]
    assert bench.outcomes() == ok(*range(40))


def test_rows_of_a_lost_lease_count_until_the_engine_has_let_go_of_them():
    bench = a_bench(task_of(0, 0, 14), task_of(1, 14, 16, suspect=True), task_of(2, 16, 30))
    bench.engine.holds_aborts = True
    for task in ("j.0", "j.1", "j.2"):
        bench.lease(task)
    bench.step()
    bench.store.take_lease_away("j.0")
    bench.beat()
    bench.step(3)
    assert bench.engine.prompts() == rows(*range(14))
    bench.engine.holds_aborts = False
    bench.step(2)
    assert bench.engine.prompts() == rows(*range(16, 30))


# ---- cancel, pause, lost leases -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "outcome"),
    [(JobState.CANCELLING, Outcome.CANCELLED), (JobState.EXPIRING, Outcome.EXPIRED)],
)
def test_in_an_ending_job_rows_inside_are_stopped_and_all_unfinished_ones_are_written(state, outcome):
    bench = a_bench(task_of(0, 0, 30), per_poll=4)
    bench.lease("j.0")
    bench.step()
    bench.store.set_job_state(state)
    bench.beat()
    bench.engine.per_poll = 0
    bench.step(2)
    assert bench.outcomes() == ok(0, 1, 2, 3) | dict.fromkeys(range(4, 30), outcome)
    assert bench.store.states() == {"j.0": TaskState.DONE}
    assert bench.worker.tally.rows == 4


def test_a_row_that_finishes_before_the_abort_reaches_it_is_kept():
    bench = a_bench(task_of(0, 0, 5))
    bench.lease("j.0")
    bench.step()
    bench.store.set_job_state(JobState.CANCELLING)
    bench.beat()
    bench.engine.outrun = 1
    bench.step(2)
    assert bench.outcomes() == ok(0) | dict.fromkeys(range(1, 5), Outcome.CANCELLED)


def test_a_paused_job_feeds_no_further_row_and_lets_those_inside_finish():
    bench = a_bench(task_of(0, 0, 30), per_poll=4)
    bench.lease("j.0")
    bench.step()
    bench.store.set_job_state(JobState.PAUSED)
    bench.beat()
    bench.step(4)
    assert bench.outcomes() == ok(*range(14))
    assert children(bench, "j.0") == {"j.0.0": (span(14, 30), False)}


def test_a_lost_lease_is_aborted_nothing_of_it_is_committed_and_its_room_is_free_again():
    bench = a_bench(task_of(0, 0, 60), per_poll=4)
    bench.lease("j.0")
    bench.step()
    assert not bench.worker.room()
    bench.store.take_lease_away("j.0")
    before = bench.store.board
    bench.beat()
    bench.step(3)
    assert (bench.engine.in_flight(), bench.worker.progress(), bench.worker.room()) == (0, [], True)
    assert (bench.store.board, bench.worker.tally.lost) == (before, 1)


def test_a_lease_lost_unnoticed_fails_at_its_commit_and_changes_nothing():
    bench = a_bench(task_of(0, 0, 10), per_poll=10)
    bench.lease("j.0")
    bench.store.take_lease_away("j.0")
    before = bench.store.board
    bench.step(2)
    assert (bench.store.board, bench.worker.tally.lost) == (before, 1)


def test_the_beat_tells_what_each_lease_has_spent_so_far():
    bench = a_bench(task_of(0, 0, 20), task_of(1, 20, 25), per_poll=3)
    bench.lease("j.0")
    bench.step()
    bench.lease("j.1")
    assert {item.token: item.usage.output_tokens for item in bench.worker.progress()} == {"token-1": 15, "token-2": 0}


# ---- drain ----------------------------------------------------------------------------------------


def test_a_drain_commits_what_finishes_and_leaves_one_child():
    bench = a_bench(task_of(0, 0, 30), per_poll=5)
    bench.lease("j.0")
    bench.step()
    bench.worker.drain()
    bench.worker.run()
    assert bench.outcomes() == ok(*range(14))
    assert children(bench, "j.0") == {"j.0.0": (span(14, 30), False)}
    assert bench.engine.in_flight() == 0


def test_a_drain_gives_rows_inside_a_grace_and_then_stops_them():
    bench = a_bench(task_of(0, 0, 30), per_poll=5, drain_grace_s=10.0)
    bench.lease("j.0")
    bench.step()
    bench.engine.per_poll = 0
    bench.worker.drain()
    bench.clock.advance(10.0)
    bench.step(3)
    assert bench.engine.in_flight() == 9
    bench.clock.advance(0.1)
    bench.worker.run()
    assert bench.outcomes() == ok(*range(5))
    assert children(bench, "j.0") == {"j.0.0": (span(5, 30), False)}


def test_a_drained_task_that_had_not_begun_goes_back_as_it_was():
    bench = a_bench(task_of(0, 0, 30))
    bench.worker.drain()
    bench.lease("j.0")
    bench.worker.run()
    assert (bench.store.states(), bench.engine.crowds) == ({"j.0": TaskState.QUEUED}, [])
    assert not bench.worker.room()


def test_a_task_leased_after_the_end_is_left_for_whoever_closes():
    bench = a_bench(task_of(0, 0, 30))
    bench.worker.drain()
    bench.worker.run()
    bench.lease("j.0")
    assert (bench.worker.progress(), bench.store.states()) == ([], {"j.0": TaskState.LEASED})


def test_a_task_open_too_long_commits_what_is_finished_and_leaves_a_child():
    bench = a_bench(task_of(0, 0, 40), per_poll=5, open_s=60.0)
    bench.lease("j.0")
    bench.step()
    bench.clock.advance(60.0)
    bench.step()
    bench.clock.advance(0.1)
    bench.step(4)
    assert bench.outcomes() == ok(*range(19))
    assert children(bench, "j.0") == {"j.0.0": (span(19, 40), False)}


def test_a_task_that_waited_too_long_for_its_turn_is_begun_all_the_same():
    """Else a task behind a slow one would be handed back for ever, without a row done."""
    bench = a_bench(task_of(0, 0, 14), task_of(1, 14, 34), open_s=60.0)
    bench.lease("j.0")
    bench.lease("j.1")
    bench.step()
    bench.clock.advance(1000.0)
    bench.step()
    assert bench.store.states() == dict.fromkeys(["j.0", "j.1"], TaskState.LEASED)
    bench.engine.per_poll = 14
    bench.step(3)
    assert bench.outcomes() == ok(*range(28))
    assert children(bench, "j.1") == {"j.1.0": (span(28, 34), False)}


# ---- death of the engine --------------------------------------------------------------------------


def test_a_death_sets_the_rows_inside_apart_and_starts_the_engine_again():
    bench = a_bench(task_of(0, 0, 20), task_of(1, 20, 40), per_poll=4, poison=("row 16",))
    bench.lease("j.0")
    bench.lease("j.1")
    bench.step(2)
    assert bench.outcomes() == ok(*range(4))
    assert children(bench, "j.0") == {"j.0.0": (span(4, 18), True), "j.0.1": (span(18, 20), False)}
    assert bench.store.states()["j.1"] is TaskState.LEASED
    assert (bench.engine.starts, bench.worker.tally.engine_deaths) == (2, 1)


def test_all_tasks_with_rows_inside_are_struck_and_one_without_goes_on_unharmed():
    tasks = [task_of(0, 0, 10), task_of(1, 10, 20), task_of(2, 20, 30)]
    bench = a_bench(*tasks, poison=("row 3",))
    for task in tasks:
        bench.lease(task.id)
    bench.step()
    assert bench.store.board.tasks["j.0"].suspect
    assert children(bench, "j.1") == {"j.1.0": (span(10, 14), True), "j.1.1": (span(14, 20), False)}
    assert bench.store.states()["j.2"] is TaskState.LEASED


@pytest.mark.parametrize("poison", [0, 13, 14, 37, 59])
def test_exactly_the_poisonous_row_ends_dead_and_every_other_row_is_answered(poison):
    bench = a_bench(task_of(0, 0, 40), task_of(1, 40, 60), per_poll=4, poison=(f"row {poison}",))
    bench.work_off()
    dead = bench.store.in_state(TaskState.VOID)
    assert [(task.ranges, task.void_reason) for task in dead] == [(span(poison, poison + 1), VoidReason.DEAD)]
    assert bench.outcomes() == ok(*[row for row in range(60) if row != poison])
    assert bench.store.board.reserved == {}
    ledger.check_balanced(bench.store.board.entries)


def test_two_poisonous_rows_both_end_dead_and_nothing_else_does():
    bench = a_bench(task_of(0, 0, 60), per_poll=3, poison=("row 10", "row 11"))
    bench.work_off()
    dead = [row for task in bench.store.in_state(TaskState.VOID) for row in ranges.rows_of(task.ranges)]
    assert sorted(dead) == [10, 11]
    assert bench.outcomes() == ok(*[row for row in range(60) if row not in {10, 11}])


def test_a_task_of_a_cancelled_job_that_dies_with_its_engine_keeps_what_it_had():
    bench = a_bench(task_of(0, 0, 30), per_poll=4)
    bench.lease("j.0")
    bench.step()
    bench.store.set_job_state(JobState.CANCELLING)
    bench.beat()
    bench.engine.poison = rows(20, 13)
    bench.step()
    assert bench.outcomes() == ok(*range(4))
    homes = [c.ranges for c in bench.store.in_state(TaskState.QUEUED)]
    assert ranges.count(ranges.from_rows(sorted(r for home in homes for r in ranges.rows_of(home)))) == 26


def test_an_engine_that_does_not_start_at_once_is_tried_again_with_growing_waits():
    bench = a_bench(task_of(0, 0, 5), per_poll=5, poison=("row 3",))
    bench.lease("j.0")
    bench.engine.fails_to_start = 3
    bench.step()
    assert (bench.engine.starts, bench.clock.monotonic()) == (2, 0.5 + 1.0 + 2.0)


def test_an_engine_that_never_starts_again_ends_the_worker_with_its_work_settled():
    bench = a_bench(task_of(0, 0, 5), per_poll=5, poison=("row 3",))
    bench.lease("j.0")
    bench.engine.fails_to_start = 1000
    with pytest.raises(EngineStartFailed):
        bench.worker.run()
    assert (bench.store.states(), bench.store.board.tasks["j.0"].suspect) == ({"j.0": TaskState.QUEUED}, True)


def test_a_task_s_wait_from_its_release_to_its_first_row_is_noted_once_by_priority():
    bench = a_bench(task_of(0, 0, 30), task_of(1, 30, 34), per_poll=5)
    bench.clock.sleep(100.0)
    bench.lease("j.0", released_at=bench.clock.now() - 0.2)
    bench.lease("j.1")
    bench.work_off()
    waits = bench.worker.tally.waits
    assert ({p: sum(h.counts) for p, h in waits.items()}, round(waits[Priority.NORMAL].total, 3)) == (
        {Priority.CRITICAL: 0, Priority.HIGH: 0, Priority.NORMAL: 1, Priority.BATCH: 0},
        0.2,
    )
