"""workers/work.py: a task in a worker's hands."""

from dataclasses import replace

import pytest

from jobs.feed import Feedable
from jobs.model import Priority, Usage
from jobs.ports.engine import EngineRequest, EngineResult, RequestProfile
from jobs.ports.rows import RowFault
from jobs.ranges import Range
from tests.support.values import PROFILE, a_job, a_leased_task, a_result, open_rows, span
from workers.work import SLOT_BITS, Spent, Work

pytestmark = pytest.mark.unit

OTHER = RequestProfile(key="other", kind="chat")


def work_of(task=None, *, slot=1, opened_s=5.0, **rows):
    task = task or a_leased_task()
    return Work(job=a_job(), task=task, rows=open_rows(task, **rows), slot=slot, opened_s=opened_s)


def indices(requests):
    return [request.id & ((1 << SLOT_BITS) - 1) for request in requests]


def test_rows_are_taken_in_order_under_ids_that_carry_the_slot():
    work = work_of(slot=3)
    assert work.take(2) == (
        PROFILE,
        [EngineRequest(3 << SLOT_BITS, "row 0"), EngineRequest((3 << SLOT_BITS) + 1, "row 1")],
    )
    assert indices(work.take(100)[1]) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert (work.unfed, sorted(work.inside)) == (0, [*range(10)])


def test_a_chunk_ends_where_the_profile_changes():
    work = work_of(profiles=(PROFILE, OTHER), profile_of=[0, 0, 1, 1, 1, 0, 0, 0, 0, 0])
    chunks = [work.take(4) for _ in range(4)]
    assert [(profile.key, indices(requests)) for profile, requests in chunks] == [
        ("k", [0, 1]),
        ("other", [2, 3, 4]),
        ("k", [5, 6, 7, 8]),
        ("k", [9]),
    ]


def test_rows_with_a_fault_never_enter_the_engine():
    faults = {1: RowFault("template_error", "no column"), 2: RowFault("template_error", "no column")}
    prompts = [None if i in faults else f"row {i}" for i in range(10)]
    work = work_of(faults=faults, prompts=prompts)
    assert indices(work.take(100)[1]) == [0, 3, 4, 5, 6, 7, 8, 9]
    assert work.unfinished() == [0, 3, 4, 5, 6, 7, 8, 9]


def test_a_task_of_nothing_but_faults_is_at_rest_from_the_start():
    fault = RowFault("template_error", "no column")
    work = work_of(faults=dict.fromkeys(range(10), fault), prompts=[None] * 10)
    assert (work.at_rest, work.unfinished()) == (True, [])


def test_a_row_without_prompt_or_fault_is_our_bug_and_no_endless_loop():
    work = work_of(prompts=[None] * 10)
    with pytest.raises(AssertionError, match="must be a fault"):
        work.take(4)


def test_a_finished_row_has_its_result_and_its_tokens_counted():
    work = work_of()
    work.take(2)
    result = a_result(work.ids_inside()[0])
    work.file(0, result)
    assert (work.results[0], sorted(work.inside), work.unfinished()) == (result, [1], [*range(1, 10)])
    assert work.finished == Spent(rows=1, input_tokens=6, cached_tokens=4, output_tokens=5)


def test_an_aborted_row_is_unfinished_and_its_tokens_are_kept_apart():
    work = work_of()
    work.take(1)
    work.file(0, EngineResult(0, "abort", input_tokens=10, cached_tokens=4, output_tokens=2))
    assert (work.results[0], work.inside, work.unfinished()) == (None, set(), [*range(10)])
    assert (work.finished, work.aborted.usage()) == (
        Spent(),
        Usage(rows=1, input_tokens=6, cached_tokens=4, output_tokens=2),
    )


def test_work_is_at_rest_when_nothing_is_inside_and_nothing_may_be_fed():
    work = work_of()
    assert not work.at_rest
    work.take(2)
    work.stopping = True
    assert (work.unfed, work.at_rest) == (0, False)
    work.file(0, a_result(0))
    work.file(1, a_result(1))
    assert work.at_rest


def test_the_feeder_sees_rank_order_and_waiting_time():
    task = a_leased_task(priority=Priority.HIGH, suspect=True)
    work = work_of(task, slot=7, opened_s=5.0)
    work.take(4)
    assert work.feedable(12.5) == Feedable(
        rank=1, opened=7, unfed=6, in_flight=4, suspect=True, waited_s=7.5, job="j", row_tokens=15.0
    )


def test_a_lifted_row_has_another_profile_and_counts_until_it_comes_back():
    work = work_of(a_leased_task(priority=Priority.BATCH))
    plain, _ = work.take(1, 3)
    lifted, requests = work.take(2, 0)
    assert (plain, lifted) == (PROFILE, replace(PROFILE, key="k/0", priority=0))
    assert [work.feedable(0.0).lifted, work.file(requests[0].id & 0xFFFFF, a_result(0)), work.lifted] == [2, None, {2}]


def test_indices_become_the_rows_of_a_task_with_gaps():
    task = a_leased_task(ranges=(Range(2, 4), *span(8, 11)))
    assert work_of(task).place([0, 1, 3, 4]) == (Range(2, 4), Range(9, 11))
