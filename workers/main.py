"""Composition root of one process's mill: the ports meet their embedded adapters here."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from infra.bootstrap import Home
from infra.data.manifest import manifest_uri
from infra.data.publish import SUCCESS
from infra.data.submission import read_submission
from infra.locks import LockTaken
from infra.metrics import MetricsPolicy, Shown, serve
from jobs.access import check_access
from jobs.ending import PauseRule
from jobs.errors import JobOwned
from jobs.feed import FeedPolicy
from jobs.figures import Source
from jobs.model import Job
from jobs.pools import Pool
from jobs.ports.engine import Engine, EngineInfo
from jobs.ports.intake import SubmitRequest
from jobs.release import ReleasePolicy
from jobs.submit import SchemaCheck, made_before, submit_to_pool
from jobs.topics import dead_topic, group_of, ingress_group, ingress_topics, topics_of
from workers.beats import Beat
from workers.crews import Alone
from workers.dispatcher import Dispatcher, DispatchPolicy
from workers.figures import DatabaseFigures
from workers.finaliser import Finaliser
from workers.given import WorkerPolicy
from workers.ingress import Ingress, IngressPolicy
from workers.mill import Mill, MillPolicy
from workers.planning import PlanAhead
from workers.reaper import Reaper, end_dead_owners
from workers.scheduler import SchedulePolicy, Scheduler
from workers.settler import Settler
from workers.worker import Worker

METRICS_FOLDER = "metrics"
"""Below the data directory: of the files by which Prometheus finds the processes."""
SMALL_OBJECTS = "db:///objects"
"""Where what is small lies of what is not the user's."""
METRICS_PORT = 9464
"""The first one, of processes that stay up: what OpenTelemetry's exporters for Prometheus take."""


@contextmanager
def owned(home: Home, job_id: str) -> Iterator[str]:
    """Hold a job for this process; yields the owner's name. Raises JobOwned naming the process that has it.

    Both locks end with the process, so a death is seen at once and `resume` may follow it immediately.
    """
    owner = home.locks.owner(f"run-{os.getpid()}-{secrets.token_hex(4)}")
    # The kernel closes a dead process's files in the order of their opening: whoever finds the job free must find its
    # owner dead already, or he would take its leases for living ones and wait for them to run out.
    with home.locks.hold(owner, [job_id]):
        try:
            claim = home.locks.claim(job_id)
        except LockTaken as taken:
            raise JobOwned(job=job_id, pid=taken.pid) from None
        with claim:
            yield owner


def tidy(home: Home) -> None:
    """What every command does first: take back what dead processes held, finish what they left half published."""
    end_dead_owners(home.store, home.locks.is_alive)
    if home.store.unsealed():
        finaliser_of(home).seal_left_over()


def seal_if_missing(home: Home, job: Job) -> bool:
    """Write the `_SUCCESS` of a job that ended and whose published results have none; whether that was so.

    Unlike `tidy`, which serves another command, it raises what keeps it from that.
    """
    if not job.state.terminal or home.objects.facts(manifest_uri(job.folder)) is None:
        return False
    if home.objects.facts(f"{job.folder}/{SUCCESS}") is not None:
        return False
    finaliser_of(home).seal(job)
    return True


def finaliser_of(home: Home) -> Finaliser:
    """Ends jobs of this data directory."""
    return Finaliser(store=home.store, sink=home.sink, publisher=home.publisher)


def plans_of(home: Home) -> PlanAhead:
    """The planning of one job; a mill takes it over."""
    return PlanAhead(store=home.store, planner=home.planner)


def plan_first(home: Home, plans: PlanAhead, job_id: str) -> None:
    """Plan the first segment while the engine starts, so that its first row need not wait. Call it again and again."""
    job = home.store.job(job_id)
    if job.next_segment == 0:
        plans.step(job, None, ahead=1)


def scheduler_of(home: Home, job: Job, owner: str, pause: PauseRule, cap: int, plans: PlanAhead) -> Scheduler:
    """The scheduler of the job's own pool; taking the lead deposes whoever led it before."""
    settings = home.settings
    group = group_of(settings.topic_prefix, job.pool)
    return Scheduler(
        store=home.store,
        broker=home.broker,
        plans=plans,
        reaper=Reaper(
            store=home.store,
            broker=home.broker,
            clock=home.clock,
            group=group,
            alive=home.locks.is_alive,
            lease_s=settings.lease_s,
        ),
        finaliser=finaliser_of(home),
        clock=home.clock,
        ids=home.ids,
        leader=home.store.lead(job.pool, owner),
        pool=job.pool,
        policy=SchedulePolicy(prefix=settings.topic_prefix, release=ReleasePolicy(ahead_rows=2 * cap)),
        pause=pause,
    )


def open_mill(
    home: Home, job: Job, owner: str, engine: Engine, info: EngineInfo, pause: PauseRule, plans: PlanAhead
) -> Mill:
    """Everything that runs one job in this process, wired and not yet started."""
    settings = home.settings
    policy = WorkerPolicy(open_s=settings.task_open_s, drain_grace_s=settings.drain_grace_s)
    worker = Worker(
        engine=engine,
        info=info,
        source=home.rows,
        settler=Settler(store=home.store, sink=home.sink, clock=home.clock),
        clock=home.clock,
        policy=policy,
    )
    topics = topics_of(settings.topic_prefix, [job.pool])
    dead = dead_topic(settings.topic_prefix)
    home.broker.ensure_topics([*topics, dead])
    dispatcher = Dispatcher(
        store=home.store,
        broker=home.broker,
        consumer=home.broker.consumer(group_of(settings.topic_prefix, job.pool), list(topics)),
        ids=home.ids,
        clock=home.clock,
        priorities=topics,
        crew=Alone(owner=owner, worker=worker),
        policy=DispatchPolicy(lease_s=settings.lease_s, dead_topic=dead),
    )
    cap = FeedPolicy.for_engine(info.max_num_seqs).cap
    return Mill(
        job_id=job.id,
        store=home.store,
        broker=home.broker,
        scheduler=scheduler_of(home, job, owner, pause, cap, plans),
        dispatcher=dispatcher,
        worker=worker,
        beat=Beat(store=home.store, worker=worker, owner=owner, beat_s=settings.beat_s, lease_s=settings.lease_s),
        clock=home.clock,
        policy=MillPolicy(beat_s=settings.beat_s),
    )


def end_without_engine(home: Home, job: Job) -> Job:
    """Bring a job that is cancelling or expiring, and that no process runs, to its end: sweep, write its rows, publish.

    Raises JobOwned when a process runs it after all: that one will do it.
    """
    with owned(home, job.id) as owner:
        end_dead_owners(home.store, home.locks.is_alive)
        scheduler = scheduler_of(home, job, owner, PauseRule(after_sample=False), cap=1, plans=plans_of(home))
        while not job.state.terminal:
            job = scheduler.step(job.id)
            scheduler.plans.wait()
        scheduler.plans.close()
    return job


def own_places(home: Home) -> tuple[str, ...]:
    """Beginnings of places that are the platform's own: nobody is granted them, and no answer shows them."""
    own, folder = home.own_objects, home.settings.home
    return tuple({SMALL_OBJECTS, own, own.removeprefix("file://"), str(folder), folder.as_uri()})


def ingress_of(home: Home, pools: Sequence[Pool], can_follow: SchemaCheck | None = None) -> Ingress | None:
    """Takes the submissions of the tenants that have an ingress; None where nobody has one."""
    settings = home.settings
    topics = ingress_topics(settings.topic_prefix, settings.ingress_tenants)
    if not topics:
        return None
    intake, models, store, ids = home.intake, home.registry, home.store, home.ids  # now, not by several threads at once

    def submit(request: SubmitRequest) -> Job:
        if (made := made_before(request, store)) is not None:
            return made  # a message that comes again: whether its grant is still there is no question any more
        check_access(request, store=store, never=own_places(home))
        return submit_to_pool(
            request, pools=pools, intake=intake, models=models, store=store, ids=ids, can_follow=can_follow
        )

    return Ingress(
        broker=home.broker,
        clock=home.clock,
        read=read_submission,
        submit=submit,
        policy=IngressPolicy(
            topics=topics,
            group=ingress_group(settings.topic_prefix),
            dead_topic=dead_topic(settings.topic_prefix),
            inputs=settings.ingress_inputs,
            outputs=settings.ingress_outputs,
        ),
    )


def show(
    home: Home, labels: Mapping[str, str], sources: Sequence[Source], *, lasting: bool = True, address: str = ""
) -> Shown:
    """Show this process's figures, as the settings say; never raises.

    labels: as in `infra.metrics.serve`. lasting: it stays up, so it shows them unless told otherwise. address: of
    this machine, for other ones.
    """
    settings = home.settings
    unsaid = METRICS_PORT if lasting else 0
    policy = MetricsPolicy(
        first_port=unsaid if settings.metrics_port < 0 else settings.metrics_port,
        bind=settings.metrics_bind,
        address=address or socket.gethostname(),
        folder=settings.home / METRICS_FOLDER,
    )
    return serve(policy, labels, sources)


def database_figures(home: Home) -> DatabaseFigures:
    """Of the whole database: for whoever schedules."""
    dead = dead_topic(home.settings.topic_prefix)
    return DatabaseFigures(store=home.store, broker=home.broker, dead_topic=dead, clock=home.clock)
