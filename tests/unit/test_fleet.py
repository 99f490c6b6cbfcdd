"""workers/fleet.py: workers are started, replaced, drained and rolled; over a ground in memory."""

import pytest

from infra.clocks import ManualClock, SeededIds
from jobs.model import JobState, Priority
from jobs.pools import Pool
from jobs.scaling import ScalePolicy
from tests.support.store import a_store
from tests.support.values import a_job, a_leased_task
from workers import reports
from workers.fleet import Fleet, FleetPolicy
from workers.reports import Phase, Report

pytestmark = pytest.mark.unit


class Yard:
    """A ground whose workers do what the test says: reports by name; None: it does not answer."""

    def __init__(self):
        self.there = {}
        self.removed = []
        self.avoided = {}

    def workers(self, pool):
        return sorted(self.there)

    def reports(self, names):
        return {name: self.there[name] for name in names if self.there[name] is not None}

    def start(self, pool, name, avoid=frozenset()):
        phase = Phase.PENDING if avoid else Phase.RUNNING  # there is one node
        self.avoided[name] = avoid
        self.there[name] = Report(name=name, pool=pool.name, phase=phase, owner=f"{name}@here", node="node")

    def drain(self, name):
        self.set(name, phase=Phase.DRAINING)

    def remove(self, name):
        self.removed.append(name)
        self.there.pop(name, None)

    def set(self, name, **changes):
        self.there[name] = self.there[name].evolve(**changes)


class Case:
    def __init__(self, *, job=None, task=None, **pool):
        self.yard, self.clock = Yard(), ManualClock()
        self.jobs = [job] if job else []
        self.store = a_store(a_job(), *([task] if task else []))
        self.store.pressing_jobs, self.store.speed = lambda *_, **__: self.jobs, lambda _: None
        self.fleet = Fleet(
            pools=[Pool(name="p", model="m", **pool)],
            ground=self.yard,
            store=self.store,
            clock=self.clock,
            ids=SeededIds(),
            policy=FleetPolicy(scale=ScalePolicy(idle_s=10.0), silent_s=20.0),
        )

    def step(self, seconds=1.0):
        self.clock.advance(seconds)
        self.fleet.step()
        return sorted(self.yard.there)

    def phases(self):
        return sorted(report.phase for report in self.yard.there.values())


A_JOB = a_job(total_rows=10, state=JobState.RUNNING)


def test_work_brings_a_worker_and_rest_takes_it_away():
    case = Case(job=A_JOB)
    (name,) = case.step()
    case.jobs = []
    assert case.step(5) == [name]
    case.step(11)
    assert case.phases() == [Phase.DRAINING]
    case.yard.set(name, phase=Phase.DRAINED)
    assert (case.step(), case.fleet.empty) == ([], True)
    case.jobs = [A_JOB]
    assert len(case.step()) == 1


def test_a_paused_job_needs_no_worker():
    assert Case(job=A_JOB.evolve(state=JobState.PAUSED)).step() == []


def test_the_least_number_is_kept_without_work():
    assert len(Case(min_workers=2, max_workers=3).step()) == 2


def test_a_request_wakes_a_pool_at_zero_and_keeps_it_awake():
    case = Case(max_workers=2)
    assert (case.step(), case.fleet.asked("p", short=True)) == ([], 30.0)
    assert len(case.step()) == 1
    case.fleet.asked("p", short=False)
    case.step(11)
    case.step(5)
    assert case.phases() == [Phase.RUNNING]
    case.step(11)
    assert case.phases() == [Phase.DRAINING]
    assert case.fleet.standings["p"].start_s == 11.0


def test_requests_without_room_bring_one_worker_at_a_time():
    case = Case(min_workers=1, max_workers=4)
    case.yard.start = lambda pool, name, _: case.yard.there.setdefault(
        name, Report(name=name, pool=pool.name, phase=Phase.STARTING, owner=name)
    )
    (first,) = case.step()
    case.fleet.asked("p", short=True)
    assert case.step() == [first]
    assert case.fleet.asked("p", short=True) == 28.0 + 1.0
    case.yard.set(first, phase=Phase.RUNNING)
    assert len(case.step()) == 2
    case.fleet.asked("p", short=True)
    assert len(case.step()) == 2


def test_a_worker_that_died_is_replaced_after_a_pause_that_doubles():
    case = Case(min_workers=1)
    for pause in (1, 2, 4):
        (name,) = case.step()
        case.step()
        del case.yard.there[name]
        assert case.step(0.1) == []
        assert case.step(pause - 0.2) == []
        assert len(case.step(0.3)) == 1


def test_a_worker_that_ran_for_long_forgives_the_failures_before_it():
    case = Case(min_workers=1)
    (name,) = case.step()
    case.step()
    case.fleet.standings["p"].failures = 5
    case.yard.set(name, uptime_s=31.0)
    case.step()
    assert case.fleet.standings["p"].failures == 0


def test_what_a_dead_worker_held_is_free_at_once():
    case = Case(min_workers=1, task=(task := a_leased_task(owner="w@here")))
    (name,) = case.step()
    case.yard.set(name, owner="w@here")
    case.step()
    del case.yard.there[name]
    case.step()
    assert case.store.states() == {task.id: "queued"}
    assert case.yard.removed == [name]


def test_a_worker_that_says_it_failed_is_removed_and_counts():
    case = Case(min_workers=1)
    (name,) = case.step()
    case.yard.set(name, phase=Phase.FAILED, reason="no such model")
    assert (case.step(0.5), case.yard.removed, case.fleet.standings["p"].failures) == ([], [name], 1)


def test_one_that_answered_once_and_then_no_more_is_ended():
    case = Case(min_workers=1)
    (name,) = case.step()
    case.step()
    case.yard.there[name] = None
    assert case.step(19) == [name]
    case.step(2)
    assert case.yard.removed == [name]


def test_one_that_has_not_answered_yet_may_wait_for_its_place():
    case = Case(min_workers=1)
    (name,) = case.step()
    case.yard.there[name] = None
    assert case.step(1000) == [name]


def test_a_drained_worker_is_no_failure_and_another_takes_its_place():
    case = Case(min_workers=1)
    (name,) = case.step()
    assert case.fleet.drain(name)
    case.step()
    assert case.phases() == [Phase.DRAINING, Phase.RUNNING]
    case.yard.set(name, phase=Phase.DRAINED)
    case.step()
    assert (case.phases(), case.fleet.standings["p"].failures) == ([Phase.RUNNING], 0)


def test_who_is_not_there_cannot_be_drained():
    assert not Case().fleet.drain("nobody")


def test_a_rolling_restart_replaces_one_after_the_other():
    case = Case(min_workers=2, max_workers=2)
    old = case.step()
    case.step()
    assert case.fleet.roll("p") == 2
    for name in old:
        case.step()
        assert case.yard.there[name].phase is Phase.DRAINING
        assert case.phases().count(Phase.DRAINING) == 1
        case.yard.set(name, phase=Phase.DRAINED)
        case.step()
    case.step()
    assert case.phases() == [Phase.RUNNING] * 2
    assert not set(old) & set(case.yard.there)


def test_ends_are_counted_by_their_cause():
    case = Case(min_workers=4, max_workers=4)
    died, failed, silent, drained = case.step()
    case.step()
    del case.yard.there[died]
    case.yard.set(failed, phase=Phase.FAILED)
    case.yard.set(drained, phase=Phase.DRAINED)
    case.step()
    case.yard.there[silent] = None
    case.step(21)
    assert case.fleet.standings["p"].ends == {"died": 1, "failed": 1, "drained": 1, "silent": 1}


def test_closing_drains_everything():
    case = Case(min_workers=2, max_workers=2, job=A_JOB)
    case.step()
    case.fleet.close()
    case.step()
    assert case.phases() == [Phase.DRAINING] * 2


def test_a_report_is_the_same_after_its_way():
    report = Report(name="w", pool="p", phase=Phase.RUNNING, room={p: p.rank for p in Priority}, rows=3, reason="ä")
    assert reports.decode(reports.encode(report)) == report


# ---- machines that go ------------------------------------------------------------------------------


def gone_soon(**pool):
    """A worker whose machine is to be taken away, and who follows it: (the case, his name, the other's)."""
    case = Case(job=A_JOB, max_workers=1, **pool)
    (first,) = case.step()
    case.yard.set(first, phase=Phase.DRAINING, going=True)
    (second,) = set(case.step()) - {first}
    return case, first, second


def test_the_next_worker_avoids_a_machine_that_goes_and_no_further_one_is_started():
    case, first, second = gone_soon()
    for _ in range(5):
        assert set(case.step()) == {first, second}
    assert case.yard.avoided == {first: frozenset(), second: frozenset({"node"})}
    assert case.fleet.standings["p"].failures == 0


def test_a_machine_that_stays_after_all_is_used_again():
    case, first, second = gone_soon()
    case.yard.there.pop(first)
    (third,) = case.step()
    assert (second in case.yard.removed, case.yard.avoided[third]) == (True, frozenset())
    assert case.fleet.standings["p"].failures == 0


def test_a_worker_elsewhere_does_not_mind_whether_the_machine_goes():
    case, first, second = gone_soon()
    case.yard.set(second, phase=Phase.RUNNING, node="other")
    case.step()
    case.yard.there.pop(first)
    assert [case.step(), case.step()] == [[second], [second]]


def test_the_end_does_not_wait_for_a_worker_that_holds_its_place_with_empty_hands():
    case, first, _ = gone_soon()
    case.yard.set(first, open_tasks=1)
    case.fleet.close()
    assert first in case.step()
    case.yard.set(first, open_tasks=0)
    assert first not in case.step()
