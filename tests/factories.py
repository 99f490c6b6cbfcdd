"""Values for tests: complete, small, and each field open to an override."""

from __future__ import annotations

from jobs import ledger, moves
from jobs.model import Job, JobSpec, JobState, Part, Price, Priority, Source, Task, Usage
from jobs.moves import Lease
from jobs.ranges import Range

PRICE = Price(
    version="v1", model="fake", currency="USD", input_micro=150_000, cached_micro=75_000, output_micro=600_000
)
USAGE = Usage(rows=10, input_tokens=100, cached_tokens=40, output_tokens=60, outcomes={"ok": 9, "error": 1})


def a_job(job_id="job-a", **changes):
    spec = JobSpec(model="fake", model_kind="chat", model_checksum="c0ffee", output="/out")
    job = Job(
        id=job_id,
        tenant="default",
        project="catalog",
        tags={"team": "red"},
        creator="ann",
        spec=spec,
        price=PRICE,
        pool=f"pool-{job_id}",
        priority=Priority.NORMAL,
        state=JobState.RUNNING,
    )
    return job.evolve(**changes)


def a_task(job, number=0, segment=0, rows=10, **changes):
    task = Task(
        id=f"{job.id}-s{segment:05d}.{number:05d}",
        job=job.id,
        segment=segment,
        pool=job.pool,
        priority=job.priority,
        source=Source(staged="file:///staged/00000.parquet", row_group=number),
        ranges=(Range(number * rows, (number + 1) * rows),),
        rows=rows,
        est_input_tokens=20 * rows,
        est_output_tokens=30 * rows,
    )
    return task.evolve(**changes)


def a_part(task, checksum=None, usage=USAGE, **changes):
    part = Part(
        task=task.id,
        uri=f"/out/{task.job}/_parts/{task.id}-{task.token}.parquet",
        size=1234,
        checksum=checksum or f"sum-{task.token}",
        rows=usage.rows,
        first_row=0,
        last_row=usage.rows - 1,
        ascending=True,
        outcomes=usage.outcomes,
    )
    return part.evolve(**changes)


def a_release(task, leader, ticket="ticket", reserve_pico=1_000):
    return moves.release(task, ticket=ticket, reserve_pico=reserve_pico, leader=(leader.scope, leader.epoch))


def a_lease(task, token="token", owner="worker", lease_s=30.0):
    """By the message that released the task as it stands here."""
    message = moves.Message(task=task.id, epoch=task.epoch, ticket=task.ticket, pool=task.pool, priority=task.priority)
    return moves.lease(message, Lease(token=token, owner=owner, lease_s=lease_s))


def a_commit(job, task, usage=USAGE, at=1.0, **part):
    return moves.commit(
        task, part=a_part(task, usage=usage, **part), usage=usage, entries=ledger.charge(job, task.id, usage, at)
    )


def a_waste(job, task, cause="worker_died", usage=USAGE, at=2.0):
    return moves.Waste(cause=cause, usage=usage, entries=ledger.waste(job, task.id, task.epoch, cause, usage, at))


class Planned:
    """A job in a store, with tasks, and the steps that bring them on."""

    def __init__(self, store, *, tasks=1, last=True, **job):
        self.store = store
        self.job = store.create_job(a_job(**job), [])
        self.ids = [f"{self.job.id}-s00000.{n:05d}" for n in range(tasks)]
        store.plan_segment(self.job.id, 0, [a_task(self.job, n) for n in range(tasks)], last=last)
        self.leader = store.lead(self.job.pool, "scheduler")

    def task(self, number=0):
        return self.store.task(self.ids[number])

    def released(self, number=0, **release):
        assert self.store.make([a_release(self.task(number), self.leader, **release)]) == ["made"]
        return self.task(number)

    def leased(self, number=0, **lease):
        lease = {"token": f"token-{number}", **lease}
        assert self.store.make([a_lease(self.released(number), **lease)]) == ["made"]
        return self.task(number)

    def done(self, number=0, **commit):
        assert self.store.make([a_commit(self.job, self.leased(number), **commit)]) == ["made"]
        return self.task(number)
