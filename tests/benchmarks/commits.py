"""Commits of tasks a second: 1, 8 and 32 threads that each commit one task after the other, as workers do.

On a PostgreSQL of its own; on one whose flushes take 10 ms longer, as with a distant standby; and on SQLite. By one
writer, too, for comparison. A task is its part, usage, four ledger entries and the end of its reservation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from infra.sql import Pace, SqlStore, open_store
from infra.sql.postgres import PARALLEL
from jobs.model import Job, Task, TaskState
from tests.benchmarks import figures
from tests.factories import a_commit, a_job, a_lease, a_release, a_task
from tests.support.postgres import postgres_server

THREADS = {1: 400, 8: 2000, 32: 4000}
"""Threads → tasks they have, more than they get done."""
ONE_WRITER = Pace(linger_s=0.0, commit_linger_s=0.0, gap_s=0.0)
_SAFE = {"fsync": "on", "full_page_writes": "on"}
_SLOW = {**_SAFE, "commit_delay": "10000", "commit_siblings": "0"}  # microseconds
_LIST = 64  # releases and leases of one transaction


def run(folder: Path, *, rounds: int, seconds: float = 1.0) -> None:
    """Print a line a database and pace: medians over the rounds, which interleave."""
    with (
        postgres_server(**_SAFE) as server,
        postgres_server(**_SLOW) as slow,
        server.database() as near,
        slow.database() as far,
    ):
        ways: dict[str, tuple[Path | str, Pace]] = {
            "PostgreSQL": (near.url, PARALLEL),
            "PostgreSQL, one writer": (near.url, ONE_WRITER),
            "PostgreSQL, slow disk": (far.url, PARALLEL),
            "PostgreSQL, slow disk, one writer": (far.url, ONE_WRITER),
            "SQLite": (folder / "home", Pace()),
        }
        found: dict[tuple[str, int], list[float]] = {}
        for number in range(rounds):
            for name, (where, pace) in ways.items():
                for threads, tasks in THREADS.items():
                    store = open_store(where, pace=pace)
                    job, leased = _leased(store, f"job-{number}-{threads}-{name.replace(' ', '-')}", tasks)
                    found.setdefault((name, threads), []).append(_rate(store, job, leased, threads, seconds))
                    store.close()
    lines = [[name, *(figures.spread(found[name, threads], ",.0f") for threads in THREADS)] for name in ways]
    print(figures.table(["commits/s", *(f"{threads} thread{'s' * (threads > 1)}" for threads in THREADS)], lines))


def _rate(store: SqlStore, job: Job, leased: Sequence[Task], threads: int, seconds: float) -> float:
    """Commits a second over some seconds."""
    done = [0] * threads
    ends = time.perf_counter() + seconds

    def commit(which: int) -> None:
        for task in leased[which::threads]:
            if time.perf_counter() > ends:
                return
            assert store.make([a_commit(job, task)]) == ["made"]
            done[which] += 1

    began = time.perf_counter()
    running = [threading.Thread(target=commit, args=(which,)) for which in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    rate = sum(done) / (time.perf_counter() - began)
    while store.fold().transactions:
        pass
    return rate


def _leased(store: SqlStore, job_id: str, tasks: int) -> tuple[Job, Sequence[Task]]:
    job = store.create_job(a_job(job_id), [])
    planned = [a_task(job, number) for number in range(tasks)]
    store.plan_segment(job.id, 0, planned, last=True)
    leader = store.lead(job.pool, "benchmark")
    for at in range(0, tasks, _LIST):
        store.make([a_release(task, leader) for task in planned[at : at + _LIST]])
        released = store.tasks(job.id, frozenset({TaskState.RELEASED}))
        store.make([a_lease(task, token=task.id) for task in released])
    return job, store.tasks(job.id, frozenset({TaskState.LEASED}), limit=tasks)
