"""workers/figures.py: what the cores show of themselves."""

from collections import Counter
from types import SimpleNamespace

import pytest

from infra.clocks import ManualClock
from jobs.errors import DatabaseUnavailable
from jobs.figures import FIGURES, Histogram
from jobs.model import JobState, Priority
from jobs.ports.census import Backlog, Census, Lag
from jobs.ports.queue import Outgoing
from jobs.requests import probe_of
from tests.support.bench import a_bench
from tests.support.live import Ear, a_live_request
from tests.support.topics import MemoryQueue
from tests.support.values import a_task, span
from workers.doorstep import LivePolicy
from workers.figures import (
    DatabaseFigures,
    census_figures,
    dispatcher_figures,
    fleet_figures,
    ingress_figures,
    scheduler_figures,
    worker_figures,
)
from workers.fleet import Standing
from workers.reports import Phase, Report

pytestmark = pytest.mark.unit

LABELS = {figure.name: figure.labels for figure in FIGURES}


def shown(samples):
    """Without `nightmill_`: name, then labels → value; of a histogram how many values it has."""
    found = {}
    for sample in samples:
        assert len(sample.labels) == len(LABELS[sample.name]), sample
        value = sum(sample.value.counts) if isinstance(sample.value, Histogram) else sample.value
        found[sample.name.removeprefix("nightmill_"), *sample.labels] = value
    return found


def test_a_worker_shows_what_it_committed_and_what_its_engine_did():
    bench = a_bench(a_task(ranges=span(0, 10)), per_poll=5, faulty=(9,))
    bench.work_off()
    me = ("p", "w")
    waits = {("release_to_engine_seconds", *me, str(priority)): 0 for priority in Priority}
    assert shown(worker_figures(bench.worker, "p", "w")) == waits | {
        ("rows_total", *me, "ok"): 9,
        ("rows_total", *me, "error"): 1,
        ("tokens_total", *me, "input"): 54,
        ("tokens_total", *me, "cached"): 36,
        ("tokens_total", *me, "output"): 45,
        ("commit_seconds", *me): 1,
        ("open_tasks", *me): 0,
        ("leases_lost_total", *me): 0,
        ("engine_rows", *me, "running"): 0,
        ("engine_rows", *me, "waiting"): 0,
        ("engine_prefix_hit_ratio", *me): 0.4,
        ("engine_rows_total", *me): 9,
        ("engine_tokens_total", *me, "input"): 54,
        ("engine_tokens_total", *me, "cached"): 36,
        ("engine_tokens_total", *me, "output"): 45,
        ("engine_deaths_total", *me): 0,
    }


def test_a_worker_that_takes_requests_shows_how_they_ended_and_who_has_its_seats():
    """A probe is no request. One of two that wait has no seat yet."""
    bench = a_bench(live=LivePolicy(max_wait_s=600), poison=("bad",), max_num_seqs=1)

    def ask(per_poll, request):
        bench.engine.per_poll = per_poll
        bench.worker.live.enter(request, Ear())
        bench.step(2)

    ask(1, probe_of("m", "chat", "a probe"))
    ask(1, a_live_request())
    ask(1, a_live_request())
    ask(0, gone := a_live_request())
    bench.worker.live.enter(gone, Ear())
    bench.worker.live.leave(gone.id)
    bench.step(2)
    ask(0, a_live_request(prompt="bad"))
    ask(0, a_live_request())
    ask(0, a_live_request())
    me = ("p", "w")
    found = {
        name: value for name, value in shown(worker_figures(bench.worker, "p", "w")).items() if "worker_" in name[0]
    }
    assert found == {
        ("worker_requests_total", *me, "done"): 2,
        ("worker_requests_total", *me, "aborted"): 1,
        ("worker_requests_total", *me, "refused"): 1,
        ("worker_requests_total", *me, "lost"): 1,
        ("worker_postings_total", *me, "written"): 3,
        ("worker_postings_total", *me, "lost"): 0,
        ("worker_requests_waiting", *me): 1,
        ("worker_seats", *me, "used"): 1,
        ("worker_seats", *me, "free"): 0,
    }


def test_a_pool_of_an_embedded_run_is_shown_without_its_job_s_name():
    census = Census(
        jobs={("run-job-1", JobState.RUNNING): 1, ("batch", JobState.PAUSED): 2},
        backlog={("run-job-1", Priority.HIGH): Backlog(rows=3, tokens=40, oldest_s=5.0)},
        outbox={"run-job-1": Lag(count=1, oldest_s=2.0)},
        leases={"run-job-1": 4},
        reservations=5,
        reserved_pico=600,
        inbox=Lag(count=7, oldest_s=8.0),
        waste_pico={"USD": 9},
    )
    assert shown(census_figures(census)) == {
        ("jobs", "run", "running"): 1,
        ("jobs", "batch", "paused"): 2,
        ("backlog_rows", "run", "high"): 3,
        ("backlog_tokens", "run", "high"): 40,
        ("backlog_oldest_seconds", "run", "high"): 5.0,
        ("outbox_messages", "run"): 1,
        ("outbox_oldest_seconds", "run"): 2.0,
        ("leases", "run"): 4,
        ("reservations",): 5,
        ("reservations_pico",): 600,
        ("folder_inbox_transactions",): 7,
        ("folder_oldest_seconds",): 8.0,
        ("waste_pico", "USD"): 9,
    }


def test_the_fleet_shows_its_workers_by_phase_and_how_they_ended():
    standing = Standing(wanted=2, ends=Counter(died=3))
    for number, phase in enumerate([Phase.RUNNING, Phase.RUNNING, Phase.PENDING]):
        standing.reports[f"w{number}"] = Report(name=f"w{number}", pool="p", phase=phase)
    assert shown(fleet_figures(SimpleNamespace(standings={"p": standing}))) == {
        ("workers_wanted", "p"): 2,
        ("workers", "p", "running"): 2,
        ("workers", "p", "pending"): 1,
        ("worker_ends_total", "p", "died"): 3,
    }


def test_scheduler_dispatcher_and_ingress_show_their_counts_by_reason():
    reaper, finaliser = SimpleNamespace(reaped=Counter(lease_lost=2)), SimpleNamespace(voided=Counter(cancelled=5))
    scheduler = SimpleNamespace(pool="run-job-1", reaper=reaper, finaliser=finaliser)
    dispatcher = SimpleNamespace(leased=7, dropped=Counter(state=1, unreadable=4))
    found = shown(scheduler_figures(scheduler)) | shown(dispatcher_figures(dispatcher, "p"))
    assert found | shown(ingress_figures(SimpleNamespace(counts=Counter(taken=6)))) == {
        ("tasks_reaped_total", "run", "lease_lost"): 2,
        ("rows_void_total", "run", "cancelled"): 5,
        ("messages_leased_total", "p"): 7,
        ("messages_dropped_total", "p", "state"): 1,
        ("messages_dropped_total", "p", "unreadable"): 4,
        ("submissions_total", "taken"): 6,
    }


class Counted:
    """A database that counts how often it is asked, and may be away."""

    def __init__(self):
        self.asked, self.away = 0, False

    def census(self):
        self.asked += 1
        if self.away:
            raise DatabaseUnavailable(where="db", reason="the test")
        return Census(reservations=self.asked)


def a_source():
    store, broker, clock = Counted(), MemoryQueue(), ManualClock()
    broker.ensure_topics(["dead"])
    return DatabaseFigures(store=store, broker=broker, dead_topic="dead", clock=clock, keep_s=5.0), store, broker, clock


def test_the_database_is_asked_once_in_a_while_however_many_read():
    source, store, _, clock = a_source()
    first = [shown(source()) for _ in range(3)][-1]
    clock.sleep(5.0)
    second = shown(source())
    assert (first["reservations",], second["reservations",], store.asked) == (1, 2, 2)


def test_while_the_database_is_away_it_says_so_and_shows_nothing_old_of_it():
    source, store, broker, _ = a_source()
    broker.publish([Outgoing(topic="dead", key=b"k", value=b"?")])
    store.away = True
    assert shown(source()) == {("database_up",): 0, ("dead_letters",): 1}
