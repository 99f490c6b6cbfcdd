"""The real dispatcher over Apache Kafka and a database, with a worker that is slower than Kafka's patience."""

import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from infra.clocks import SystemClock, SystemIds
from infra.sql import AT_ONCE, open_store
from jobs.model import TaskState
from jobs.topics import topic as topic_of
from jobs.topics import topics_of
from tests.factories import Planned, a_commit
from tests.support.kafka import eventually
from workers import wire
from workers.dispatcher import Dispatcher, DispatchPolicy
from workers.loops import Alarm, Loop
from workers.reaper import Reaper
from workers.sending import send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

MAX_POLL_S = 2.0


class SlowWorker:
    """Takes one task at a time and works on the first until it is told to finish."""

    def __init__(self, store, job):
        self.store, self.job = store, job
        self.accepted, self.may_finish, self._busy = [], threading.Event(), threading.Event()

    def room(self, priority):
        return not self._busy.is_set()

    def whom(self, wanted):
        return [None if self._busy.is_set() else "worker" for _ in wanted]

    def accept(self, job, task):
        self.accepted.append(task)
        self._busy.set()
        threading.Thread(target=self._work, args=(task,), daemon=True).start()

    def _work(self, task):
        assert self.may_finish.wait(120)
        assert self.store.make([a_commit(self.job, task)]) == ["made"]
        self._busy.clear()


class Full:
    """A crew without room."""

    def room(self, priority):
        return False

    def whom(self, wanted):
        return [None for _ in wanted]

    def accept(self, job, task):
        raise AssertionError(task)


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path, pace=AT_ONCE)
    yield opened
    opened.close()


@pytest.fixture
def queue(kafka):
    opened = kafka.open(partitions=2, max_poll_s=MAX_POLL_S)
    yield opened
    opened.close()
    kafka.clear()


@contextmanager
def dispatching(store, queue, job, crew):
    """A dispatcher at work in its two threads; yields it."""
    topics = topics_of("nightmill", [job.pool])
    dispatcher = Dispatcher(
        store=store,
        broker=queue,
        consumer=queue.consumer(f"nightmill.{job.pool}", list(topics)),
        ids=SystemIds(),
        clock=SystemClock(),
        priorities=topics,
        crew=crew,
        policy=DispatchPolicy(),
    )
    alarm = Alarm()
    loops = [Loop("poll", dispatcher.poll_step, alarm), Loop("lease", dispatcher.lease_step, alarm)]
    for loop in loops:
        loop.start()
    yield dispatcher
    for loop in loops:
        assert loop.stop(20)
    dispatcher.consumer.close()
    assert alarm.error is None


def publish(store, queue, pool):
    rows = store.pending(100, pool)
    places = send(queue, [wire.encode("nightmill", row.message) for row in rows])
    store.published({row.id: place for row, place in zip(rows, places, strict=True)})


def committed(queue, job):
    """How many messages the group is past, in all."""
    group, topics = f"nightmill.{job.pool}", topics_of("nightmill", [job.pool])
    return sum(queue.committed(group, topic, part) or 0 for topic in topics for part in range(2))


def test_work_of_three_poll_intervals_is_done_once_while_ten_dispatchers_come_and_go(store, queue):
    planned = Planned(store, tasks=6)
    job = planned.job
    queue.ensure_topics([*topics_of("nightmill", [job.pool]), "nightmill.dead"])
    for number in range(6):
        planned.released(number, ticket=f"ticket-{number}")
    publish(store, queue, job.pool)
    worker = SlowWorker(store, job)
    with dispatching(store, queue, job, worker) as dispatcher:
        assert eventually(lambda: worker.accepted)
        assert eventually(lambda: committed(queue, job) == 1)
        began = time.monotonic()
        for _ in range(10):
            with dispatching(store, queue, job, Full()) as other:
                eventually(other.consumer.assigned, within_s=3.0)
        time.sleep(max(0.0, 3 * MAX_POLL_S - (time.monotonic() - began)))
        assert len(worker.accepted) == 1
        worker.may_finish.set()
        assert eventually(lambda: store.task_counts(job.id) == {TaskState.DONE: 6})
        assert eventually(lambda: committed(queue, job) == 6)
    assert Counter(task.id for task in worker.accepted) == dict.fromkeys(planned.ids, 1)
    assert {planned.task(number).epoch for number in range(6)} == {1}
    assert dict(dispatcher.dropped) == {}


def test_messages_of_a_topic_that_was_wiped_are_found_lost_and_the_work_is_done(store, queue):
    planned = Planned(store, tasks=2)
    job, topics = planned.job, topics_of("nightmill", [planned.job.pool])
    topic = topic_of("nightmill", job.pool, job.priority)
    queue.ensure_topics([*topics, "nightmill.dead"])
    for number in range(2):
        planned.released(number, ticket=f"ticket-{number}")
    publish(store, queue, job.pool)
    queue.delete_topic(topic)
    queue.ensure_topics([topic])
    reaper = Reaper(
        store=store, broker=queue, clock=SystemClock(), group=f"nightmill.{job.pool}", alive=lambda _: True,
        lost_after_s=0.0,
    )  # fmt: skip
    assert reaper.step(job.pool) == 2
    for number in range(2):
        planned.released(number, ticket=f"again-{number}")
    publish(store, queue, job.pool)
    worker = SlowWorker(store, job)
    worker.may_finish.set()
    with dispatching(store, queue, job, worker):
        assert eventually(lambda: store.task_counts(job.id) == {TaskState.DONE: 2})
    assert [task.epoch for task in worker.accepted] == [2, 2]
