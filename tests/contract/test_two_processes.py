"""Two processes on one database: both get through and nothing is lost. On one data directory: a killed one is known to
be dead.
"""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from infra.clocks import ManualClock
from infra.locks import LockTaken, OwnerLock
from infra.queue import open_queue
from infra.sql import AT_ONCE, open_store
from jobs.model import TaskState
from jobs.ports.queue import Outgoing
from tests.factories import USAGE, a_job, a_task

pytestmark = pytest.mark.contract

ROOT = Path(__file__).parents[2]
TASKS = 60


@pytest.fixture
def start():
    """Starts programs in processes of their own; whatever becomes of the test, they end with it."""
    started = []

    def one(program, *arguments):
        command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield one
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    """A database: a data directory, or a URL."""
    if request.param == "sqlite":
        yield tmp_path / "home"
        return
    with request.getfixturevalue("postgres").new_database() as database:
        yield database.url


OPEN = """
    import sys, threading
    from pathlib import Path
    from infra.sql import open_store

    where = sys.argv[1]
    where = where if "://" in where else Path(where)
"""
HAMMER = f"""{OPEN}
    from jobs.model import TaskState
    from tests.factories import a_commit, a_lease, a_release

    store = open_store(where)
    job = store.job(sys.argv[2])
    leader = store.lead(job.pool, "me")
    print("ready", flush=True)
    sys.stdin.readline()

    def carry(tasks):
        for task in tasks:
            assert store.make([a_release(task, leader)]) == ["made"]
            assert store.make([a_lease(store.task(task.id), token=task.id)]) == ["made"]
            assert store.make([a_commit(job, store.task(task.id))]) == ["made"]
            store.fold()

    tasks = store.tasks(job.id, frozenset({{TaskState.QUEUED}}))
    threads = [threading.Thread(target=carry, args=(tasks[n::4],)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    store.close()
"""


def test_two_busy_processes_both_commit_and_nothing_is_lost(where, start):
    store = open_store(where, pace=AT_ONCE)
    jobs = [store.create_job(a_job(f"job-{name}"), []) for name in "ab"]
    for job in jobs:
        store.plan_segment(job.id, 0, [a_task(job, n) for n in range(TASKS)], last=True)
    runs = [start(HAMMER, where, job.id) for job in jobs]
    for run in runs:
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        run.stdin.write("go\n")
        run.stdin.flush()
    for run in runs:
        run.communicate(timeout=60)
    assert [run.returncode for run in runs] == [0, 0]
    order = [entry.job for entry in store.entries() if entry.line == 0]
    for one, other in itertools.permutations(job.id for job in jobs):
        assert order.index(one) < len(order) - 1 - order[::-1].index(other)  # neither waited for the other's end
    while store.fold().transactions:
        pass
    for job in jobs:
        assert store.task_counts(job.id) == {TaskState.DONE: TASKS}
        assert store.job(job.id).usage.rows == TASKS * USAGE.rows
    report = store.verify()
    assert (report.faults, report.transactions, report.unsealed) == ((), 2 * TASKS, 0)
    store.close()


def test_many_processes_may_make_the_database_at_once(where, start):
    program = f"""{OPEN}
    print(open_store(where).lead("scope", "me").epoch)
    """
    runs = [start(program, where) for _ in range(3)]
    assert sorted(int(run.communicate(timeout=60)[0]) for run in runs) == [1, 2, 3]


def test_many_processes_may_make_the_queue_at_once(tmp_path, start):
    program = """
        import sys
        from pathlib import Path
        from infra.queue import open_queue
        queue = open_queue(Path(sys.argv[1]))
        queue.ensure_topics(["t"])
        print(queue.facts("t").topic_id)
    """
    runs = [start(program, tmp_path / "home") for _ in range(3)]
    assert len({run.communicate(timeout=60)[0] for run in runs}) == 1


HOLDER = """
    import sys
    from pathlib import Path
    from infra.locks import OwnerLock
    from infra.queue import open_queue

    home = Path(sys.argv[1])
    locks = OwnerLock(home)
    held = locks.hold("run-1", ["job-a", "job-b"]), locks.claim("job-a")
    queue = open_queue(home)
    queue.ensure_topics(["t"])
    consumer = queue.consumer("g", ["t"])
    assert len(consumer.poll(10.0)) == 1
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path, start):
    """A process that holds an owner's lock, a job and the only partition of a topic."""
    queue = open_queue(tmp_path, pace=AT_ONCE)
    queue.ensure_topics(["t"])
    queue.publish([Outgoing(topic="t", key=b"k", value=b"v")])
    queue.close()
    process = start(HOLDER, tmp_path)
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_killed_process_is_known_to_be_dead_at_once(tmp_path, holder):
    locks = OwnerLock(tmp_path)
    assert locks.is_alive("run-1")
    assert locks.pid_of("run-1") == locks.holder_of("job-a") == holder.pid
    assert (tmp_path / "owners/run-1.lock").read_text() == f"{holder.pid}\njob-a job-b"
    with pytest.raises(LockTaken, match=f"job-a is held by process {holder.pid}"):
        locks.claim("job-a")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not locks.is_alive("run-1")
    assert locks.holder_of("job-a") is None
    with locks.claim("job-a"):
        assert locks.holder_of("job-a") == os.getpid()


def test_a_killed_consumer_s_partition_goes_to_the_next_one_without_waiting(tmp_path, holder):
    queue = open_queue(tmp_path, clock=ManualClock(time.time()), pace=AT_ONCE)
    first = queue.consumer("g", ["t"])
    assert first.poll(0.0) == []
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    second = queue.consumer("g", ["t"])  # joining buries the dead
    records = first.poll(0.0) + second.poll(0.0)
    assert [record.value for record in records] == [b"v"]
    queue.close()


def test_a_lock_does_not_outlive_its_process_in_a_forked_child(tmp_path, start):
    program = """
        import os, sys, time
        from pathlib import Path
        from infra.locks import OwnerLock
        held = OwnerLock(Path(sys.argv[1])).claim("job-a")
        child = os.fork()
        if child == 0:
            os.close(1)
            time.sleep(60)
        print(child, flush=True)
        os._exit(0)
    """
    child = int(start(program, tmp_path).communicate(timeout=30)[0])
    try:
        OwnerLock(tmp_path).claim("job-a").close()
    finally:
        os.kill(child, signal.SIGKILL)
