"""workers/pool_scheduler.py over every database: many jobs of a pool in one tick."""

from collections import Counter

import pytest

from infra.clocks import ManualClock, SeededIds
from jobs import moves
from jobs.ending import OUR_FAULT, PauseRule
from jobs.errors import Broken, Deposed, InputChanged, StorageFull, Unavailable
from jobs.model import JobState, Priority, TaskState
from jobs.moves import Lease
from jobs.picking import PickPolicy
from jobs.ports.planning import PlannedSegment
from jobs.release import ReleasePolicy
from jobs.topics import topics_of
from tests.factories import a_job, a_task
from tests.support.bench import Inline, Later
from tests.support.topics import MemoryQueue
from workers.pool_scheduler import PoolScheduler
from workers.reaper import Reaper
from workers.scheduler import SchedulePolicy
from workers.small import SmallJobs

pytestmark = pytest.mark.contract

RELEASE = ReleasePolicy(ahead_tasks=2, ahead_rows=1)
RUNNING = frozenset({JobState.RUNNING})


class Hall:
    """A pool `p` and its scheduler; each job has a segment of four tasks unless the test says otherwise."""

    def __init__(self, store):
        self.store, self.clock, self.tasks, self.finished = store, ManualClock(), Counter(), []
        self.faults, self.end_faults = {}, {}  # by job: what planning or ending it raises
        self.broker = MemoryQueue()
        self.broker.ensure_topics(list(topics_of("nightmill", ["p"])))
        reaper = Reaper(store=store, broker=self.broker, clock=self.clock, group="g", alive=lambda _: True)
        self.scheduler = PoolScheduler(
            store=store,
            broker=self.broker,
            reaper=reaper,
            finaliser=self,
            clock=self.clock,
            ids=SeededIds(),
            leader=store.lead("p", "s"),
            pool="p",
            policy=SchedulePolicy(release=RELEASE),
            planner=self,
            picking=PickPolicy(lower_share=0.25, release=RELEASE),
            pause=PauseRule(),
            threads=Inline(),
            small=SmallJobs(store=store, planner=self, finaliser=self, threads=Inline()),
        )

    def plan(self, job, files, segment, *, ending, rows_per_s):
        if job.id in self.faults:
            raise self.faults[job.id]
        return PlannedSegment(tasks=tuple(a_task(job, n) for n in range(self.tasks.get(job.id, 4))), last=True)

    def finish(self, job):
        self.finished.append(job.id)
        if job.id in self.end_faults:
            raise self.end_faults[job.id]
        return self.store.set_state(job.id, expect=frozenset({job.state}), to=JobState.COMPLETED)

    def finish_all(self, jobs):
        return [self.finish(job) for job in jobs]

    def job(self, name, **changes):
        job = a_job(name, **{"pool": "p", "created_at": self.store.now(), **changes})
        return self.store.create_job(job, [])

    def step(self, times=1, workers=1):
        for _ in range(times):
            self.clock.advance(0.1)
            self.scheduler.step(workers)

    def released(self):
        return [(task.job, task.priority) for task in self.store.released("p")]

    def work_off(self):
        """Lease all that is released and end it without a part."""
        for number, task in enumerate(self.store.released("p")):
            message = moves.Message(
                task=task.id, epoch=task.epoch, ticket=task.ticket, pool="p", priority=task.priority
            )
            token = f"{task.id}-{number}"
            self.store.make([moves.lease(message, Lease(token=token, owner="w", lease_s=30.0))])
            leased = self.store.task(task.id)
            self.store.make([moves.divide(leased, [], moves.Waste(cause="test"))])

    def in_topics(self):
        return {topic: len(messages) for topic, messages in self.broker.topics.items() if messages}


@pytest.fixture
def hall(store):
    return Hall(store)


def test_the_most_urgent_job_is_released_first_and_published_in_its_topic(hall):
    hall.job("job-slow", priority=Priority.BATCH)
    hall.job("job-fast", priority=Priority.CRITICAL)
    hall.step(3)
    assert hall.released() == [("job-fast", Priority.CRITICAL)] * 2
    assert hall.in_topics() == {"nightmill.p.critical": 2}


def test_what_lies_released_of_a_lower_priority_does_not_hold_up_an_urgent_job(hall):
    hall.job("job-slow", priority=Priority.BATCH)
    hall.step(3)
    hall.job("job-fast", priority=Priority.CRITICAL)
    hall.step(3)
    assert Counter(hall.released()) == {("job-slow", Priority.BATCH): 2, ("job-fast", Priority.CRITICAL): 2}


def test_under_a_stream_of_urgent_work_the_other_job_is_done_too(hall):
    hall.tasks["job-fast"] = 40
    hall.job("job-slow", priority=Priority.BATCH)
    hall.job("job-fast", priority=Priority.CRITICAL)
    for _ in range(16):
        hall.step()
        hall.work_off()
    assert hall.finished == ["job-slow"]
    assert hall.store.job("job-fast").state is JobState.RUNNING


def test_of_equal_priority_the_earliest_due_goes_first(hall):
    hall.job("job-a")
    hall.job("job-b", deadline_at=hall.store.now() + 5000.0)
    hall.step(3)
    assert {job for job, _ in hall.released()} == {"job-b"}


def test_without_workers_jobs_are_planned_and_nothing_is_released(hall):
    hall.job("job-a")
    hall.step(3, workers=0)
    assert hall.released() == []
    assert hall.store.task_counts("job-a") == {TaskState.QUEUED: 4}


def test_the_stretch_ahead_grows_with_the_workers(hall):
    hall.job("job-a")
    hall.step(3, workers=2)
    assert len(hall.released()) == 4


def test_a_paused_job_s_tasks_are_taken_back_and_another_s_take_their_place(hall):
    hall.job("job-a", created_at=900.0)
    hall.job("job-b")
    hall.step(3)
    hall.store.set_state("job-a", expect=RUNNING, to=JobState.PAUSED)
    hall.step(3)
    assert {job for job, _ in hall.released()} == {"job-b"}


def test_a_new_priority_takes_what_was_released_with_the_old_one_back(hall):
    hall.job("job-a")
    hall.step(3)
    hall.store.set_priority("job-a", Priority.CRITICAL)
    hall.step(3)
    assert hall.released() == [("job-a", Priority.CRITICAL)] * 2


def test_a_cancelled_job_is_swept_and_ended(hall):
    hall.job("job-a")
    hall.step(3)
    hall.store.set_state("job-a", expect=RUNNING, to=JobState.CANCELLING)
    hall.step(3)
    assert (hall.store.task_counts("job-a"), hall.finished) == ({TaskState.VOID: 4}, ["job-a"])


def test_a_job_past_its_deadline_expires(hall):
    hall.job("job-a", deadline_at=hall.store.now() - 1.0)
    hall.step(4)
    assert hall.finished == ["job-a"]


CHANGED, FULL = InputChanged(file="in.parquet", reason="other bytes"), StorageFull(where="/disk")
FAULTS = {
    "an input that changed": (CHANGED, JobState.PAUSED, CHANGED.sentence),
    "a full disk": (FULL, JobState.PAUSED, FULL.sentence),
    "a store that is away": (Unavailable(reason="gone"), JobState.RUNNING, ""),
    "a bug that a client library raises": (ZeroDivisionError("secret /path"), JobState.PAUSED, OUR_FAULT),
    "a bug that was found out": (Broken(reason="a secret statement"), JobState.PAUSED, OUR_FAULT),
}
each_fault = pytest.mark.parametrize(("fault", "state", "reason"), FAULTS.values(), ids=FAULTS)


@each_fault
def test_a_job_that_cannot_be_planned_is_paused_with_the_reason_and_the_others_go_on(hall, fault, state, reason):
    hall.faults["job-a"] = fault
    hall.job("job-a", created_at=900.0)
    hall.job("job-b")
    hall.step(3)
    job = hall.store.job("job-a")
    assert (job.state, job.reason, {name for name, _ in hall.released()}) == (state, reason, {"job-b"})


@each_fault
def test_a_job_that_cannot_be_ended_is_paused_with_the_reason_and_the_others_go_on(hall, fault, state, reason):
    hall.end_faults["job-a"] = fault
    hall.job("job-a", planned=True)
    hall.job("job-b")
    hall.step(3)
    job = hall.store.job("job-a")
    assert (job.state, job.reason, {name for name, _ in hall.released()}) == (state, reason, {"job-b"})


@pytest.mark.parametrize("which", ["faults", "end_faults"])
def test_a_store_that_only_one_small_job_needs_keeps_no_other_from_being_planned_and_ended(store, which):
    hall = Hall(store)
    threads = Later()
    hall.scheduler.small = SmallJobs(store=store, planner=hall, finaliser=hall, threads=threads)
    getattr(hall, which)["job-a"] = Unavailable(reason="gone")
    for name in ("job-a", "job-b"):
        hall.job(name, total_rows=2, planned=which == "end_faults")
    for _ in range(200):
        hall.step()
        threads.run()
    others = store.job("job-b")
    assert (store.job("job-a").state, others.planned, others.state) == (
        JobState.RUNNING,
        True,
        JobState.RUNNING if which == "faults" else JobState.COMPLETED,
    )


def test_a_job_whose_tasks_cannot_be_released_is_paused_and_the_others_go_on(hall, monkeypatch):
    def reserve_pico(job, _):
        return 1 << 70 if job.id == "job-a" else 1  # more than a database's integers hold

    monkeypatch.setattr("workers.pool_scheduler.reserve_pico", reserve_pico)
    hall.tasks |= {"job-a": 1, "job-b": 1}
    hall.job("job-a", created_at=900.0)
    hall.job("job-b")
    hall.step(4)
    assert (hall.store.job("job-a").reason, hall.released()) == (OUR_FAULT, [("job-b", Priority.NORMAL)])


def test_a_job_that_cannot_be_ended_is_tried_again_ever_more_seldom_until_it_can(hall):
    hall.end_faults["job-a"] = ZeroDivisionError()
    hall.job("job-a", planned=True)
    tried = []
    for second in range(100):
        hall.step(10)
        if len(hall.finished) > len(tried):
            tried.append(second)
    hall.end_faults.clear()
    hall.clock.advance(100.0)
    hall.step(3)
    assert (tried, hall.store.job("job-a").state) == ([0, 5, 15, 35, 75], JobState.COMPLETED)


def test_a_paused_job_past_its_deadline_expires_too(hall):
    hall.job("job-a", state=JobState.PAUSED, deadline_at=hall.store.now() - 1.0)
    hall.step(4)
    assert hall.finished == ["job-a"]


def test_a_sample_is_run_first_and_then_waits_for_a_person(hall):
    spec = a_job().spec.evolve(sample=10)
    hall.plan = lambda job, files, segment, **_: PlannedSegment(
        tasks=(a_task(job, segment=segment),), last=segment == 1
    )
    hall.job("job-a", spec=spec)
    hall.step(3)
    hall.work_off()
    hall.step()
    assert hall.store.job("job-a").state is JobState.PAUSED
    hall.step(3)
    assert hall.store.job("job-a").next_segment == 1
    hall.store.set_state("job-a", expect=frozenset({JobState.PAUSED}), to=JobState.RUNNING, reason="resumed by x")
    hall.step(3)
    assert hall.store.job("job-a").next_segment == 2


def test_a_job_that_was_resumed_before_this_scheduler_began_is_known_as_resumed(hall):
    hall.job("job-a", reason="resumed by nightmill resume", next_segment=1, spec=a_job().spec.evolve(sample=10))
    hall.plan = lambda job, files, segment, **_: PlannedSegment(tasks=(a_task(job, segment=segment),), last=True)
    hall.step(3)
    assert hall.store.job("job-a").planned


def test_a_deposed_scheduler_releases_nothing_and_says_so(hall):
    hall.job("job-a")
    hall.store.lead("p", "other")
    with pytest.raises(Deposed, match="Pool p is scheduled by other now"):
        hall.step(3)
    assert hall.released() == []
