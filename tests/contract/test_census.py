"""What waits in the database, counted: one body over every adapter."""

import pytest

from jobs import moves
from jobs.model import JobState, Priority, Usage
from jobs.ports.census import Backlog, Census, Lag
from jobs.ports.store import Place
from tests.factories import Planned, a_waste

pytestmark = pytest.mark.contract

NORMAL = ("pool-job-a", Priority.NORMAL)


def test_nothing_waits_in_an_empty_database(store):
    assert store.census() == Census()


def test_each_figure_counts_what_is_open(store, clock):
    p = Planned(store, tasks=4, total_rows=40, created_at=clock.now())
    clock.advance(60.0)
    p.leased(0)
    p.released(1)
    clock.advance(5.0)
    assert store.census() == Census(
        jobs={("pool-job-a", JobState.RUNNING): 1},
        backlog={NORMAL: Backlog(rows=40, tokens=40 * 50, oldest_s=65.0)},
        outbox={"pool-job-a": Lag(count=1, oldest_s=5.0)},
        leases={"pool-job-a": 1},
        reservations=2,
        reserved_pico=2_000,
    )


def test_the_folder_s_lag_ends_with_the_fold_and_what_was_done_is_no_backlog(store, clock):
    p = Planned(store, tasks=4, total_rows=40)
    p.done(0)
    clock.advance(3.0)
    before = store.census()
    assert (before.inbox.count, before.inbox.oldest_s) == (1, clock.now() - 1.0)
    store.fold()
    after = store.census()
    assert (after.inbox, after.backlog[NORMAL].rows) == (Lag(), 30)


def test_tokens_are_estimated_from_what_rows_took_as_soon_as_some_are_done(store):
    p = Planned(store, tasks=2, total_rows=20)
    assert store.census().backlog[NORMAL].tokens == 20 * 50
    p.done(0, usage=Usage(rows=10, input_tokens=10, cached_tokens=20, output_tokens=40, outcomes={"ok": 10}))
    store.fold()
    assert store.census().backlog[NORMAL].tokens == 10 * 7


def test_jobs_of_a_pool_add_up_and_those_that_do_not_run_are_no_backlog(store):
    for number, state in enumerate([JobState.RUNNING, JobState.RUNNING, JobState.PAUSED]):
        Planned(store, job_id=f"job-{number}", pool="p", total_rows=10, state=state)
    census = store.census()
    assert census.jobs == {("p", JobState.RUNNING): 2, ("p", JobState.PAUSED): 1}
    assert {key: heap.rows for key, heap in census.backlog.items()} == {("p", Priority.NORMAL): 20}


def test_a_published_message_is_no_lag_and_repeated_work_is_told_by_its_value(store):

    p = Planned(store, tasks=2, total_rows=20)
    p.released(0)
    place = Place(topic="t", topic_id="i", partition=0, offset=0)
    store.published({row.id: place for row in store.pending(10)})
    task = p.leased(1)
    waste = a_waste(p.job, task)
    store.make([moves.hand_back(task, waste)])
    store.fold()
    census = store.census()
    assert (census.outbox, census.waste_pico) == ({}, {"USD": waste.entries[0].amount_pico})
