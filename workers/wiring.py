"""Composition root of what a pool is made of: scheduler, dispatcher, worker, fleet, over the adapters of a home.

The actors of a cluster and `nightmill up` in one process are built from the same parts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from infra.bootstrap import Home
from infra.data.filesweeping import FileSweeper
from infra.data.frozen import tenant_folder
from infra.engines.making import Engines
from infra.engines.spec import RayPlace
from infra.live import DoorServer
from jobs.batching import Keeper, KeepPolicy
from jobs.delivering import Deliverer
from jobs.ending import PauseRule
from jobs.errors import EngineStartFailed, NightmillError, Unavailable
from jobs.picking import PickPolicy
from jobs.pools import Pool
from jobs.ports.engine import EngineInfo, ModelKind
from jobs.ports.store import Leader
from jobs.release import ReleasePolicy
from jobs.requests import LiveRequest, probe_of
from jobs.retry import Backoff
from jobs.scaling import ScalePolicy
from jobs.topics import dead_topic, group_of, topics_of
from workers.delivering import Delivering, DeliveryPolicy
from workers.dispatcher import Crew, Dispatcher, DispatchPolicy
from workers.doorstep import LivePolicy
from workers.fleet import Fleet, FleetPolicy, Ground
from workers.front import Front, Ways
from workers.given import WorkerPolicy
from workers.health import Watch
from workers.keeping import Keeping
from workers.live import Live, live_of
from workers.main import SMALL_OBJECTS, finaliser_of
from workers.pool_scheduler import PoolScheduler
from workers.pool_worker import PoolWorker
from workers.posting import Poster
from workers.reaper import Reaper
from workers.reports import Report
from workers.scheduler import SchedulePolicy
from workers.settler import Settler
from workers.small import SmallJobs
from workers.worker import Worker

log = structlog.get_logger()

_LOOK_S = 0.2
_ENGINE_STARTS = 5
_KEEPERS = 4
_LISTS = 8
"""Lists of small jobs at a time, of all pools: two that are planned and two that end of each."""
_SMALL_BYTES = 64 << 10
_DEAD_S = 3600.0
"""A file is dead for so long before a service deletes it: whoever is reading it may end."""
_LEASES = 64
"""Messages that a dispatcher leases in one transaction at most."""


@dataclass(frozen=True, slots=True)
class Planners:
    """Threads that plan and end the jobs of all pools of a process: few for large ones, which take memory, and some for
    lists of small ones, which wait for the database.
    """

    large: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="plan"))
    small: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_LISTS, thread_name_prefix="quick"))

    def close(self) -> None:
        """Waits for what is under way."""
        for threads in (self.large, self.small):
            threads.shutdown(wait=True, cancel_futures=True)


def scheduler_of_pool(home: Home, pool: Pool, leader: Leader, planners: Planners) -> PoolScheduler:
    """The scheduler of a declared pool, under a leadership that was taken for it."""
    settings = home.settings
    release = ReleasePolicy()
    finaliser = finaliser_of(home)
    return PoolScheduler(
        store=home.store,
        broker=home.broker,
        reaper=Reaper(
            store=home.store,
            broker=home.broker,
            clock=home.clock,
            group=group_of(settings.topic_prefix, pool.name),
            alive=home.locks.is_alive,
            lease_s=settings.lease_s,
        ),
        finaliser=finaliser,
        clock=home.clock,
        ids=home.ids,
        leader=leader,
        pool=pool.name,
        policy=SchedulePolicy(prefix=settings.topic_prefix, release=release),
        planner=home.planner,
        picking=PickPolicy(lower_share=settings.pool_lower_share, release=release),
        pause=PauseRule(least_rows=settings.pause_min_rows),
        threads=planners.large,
        small=SmallJobs(store=home.store, planner=home.planner, finaliser=finaliser, threads=planners.small),
    )


def dispatcher_of_pool(home: Home, pool: str, crew: Crew) -> Dispatcher:
    """A dispatcher of a declared pool; its topics are made where they are missing."""
    settings = home.settings
    topics = topics_of(settings.topic_prefix, [pool])
    dead = dead_topic(settings.topic_prefix)
    home.broker.ensure_topics([*topics, dead])
    return Dispatcher(
        store=home.store,
        broker=home.broker,
        consumer=home.broker.consumer(group_of(settings.topic_prefix, pool), list(topics)),
        ids=home.ids,
        clock=home.clock,
        priorities=topics,
        crew=crew,
        policy=DispatchPolicy(lease_s=settings.lease_s, dead_topic=dead, at_once=_LEASES),
    )


def worker_of_pool(home: Home, pool: Pool, place: Report, ray: RayPlace | None = None) -> PoolWorker:
    """A worker of a declared pool, its engine not yet started. place: what is known of it so far. ray: where its
    engine's own workers begin, if it is one over several nodes.
    """
    settings = home.settings
    engine = home.making.of_pool(home.registry.resolve(pool.model), pool, f"engine-{place.name}", ray)

    def make(info: EngineInfo) -> Worker:
        return Worker(
            live=_live(home, pool, place.name, engine, info) if pool.takes_requests else None,
            engine=engine,
            info=info,
            source=home.rows,
            settler=Settler(store=home.store, sink=home.sink, clock=home.clock),
            clock=home.clock,
            policy=WorkerPolicy(
                open_s=settings.task_open_s,
                drain_grace_s=settings.drain_grace_s,
                lower_share=settings.pool_lower_share,
                lends=pool.lends,
            ),
            on_fault=core.give_up,
        )

    core = PoolWorker(
        place=place,
        store=home.store,
        start_engine=lambda give_up: _start_engine(engine, give_up),
        make=make,
        stop_engine=engine.stop,
        ask_schema=engine.ask_schema,
        model=pool.model,
        beat_s=settings.beat_s,
        lease_s=settings.lease_s,
        lends=pool.lends,
    )
    return core


def _live(home: Home, pool: Pool, worker: str, engine: Engines, info: EngineInfo) -> Live:
    poster = Poster(post=home.store.post_requests, clock=home.clock)
    policy = LivePolicy(max_wait_s=home.settings.request_wait_s, kept_free=pool.kept_free if pool.runs_tasks else 0.0)
    return live_of(engine, info, poster, home.clock, policy, pool=pool.name, worker=worker)


def serve_door(core: PoolWorker, host: str) -> DoorServer:
    """A worker's door, for the other processes of a cluster."""
    return DoorServer(core, host=host, lose=core.lose, listen=core.listen)


def _start_engine(engine: Engines, give_up: Callable[[], bool]) -> EngineInfo | None:
    again, attempt = Backoff(attempts=_ENGINE_STARTS), 0
    while not give_up():
        try:
            if (info := engine.ready(_LOOK_S)) is not None:
                return info
        except EngineStartFailed as error:
            attempt += 1
            wait_s = again.wait_s(attempt)
            if wait_s is None:
                raise
            log.error("engine_start_failed", reason=error.sentence, again_in_s=wait_s)
            time.sleep(wait_s)
    return None


def fleet_of(home: Home, pools: Sequence[Pool], ground: Ground) -> Fleet:
    """Keeps the pools at the workers they should have."""
    settings = home.settings
    return Fleet(
        pools=pools,
        ground=ground,
        store=home.store,
        clock=home.clock,
        ids=home.ids,
        policy=FleetPolicy(
            scale=ScalePolicy(idle_s=settings.pool_idle_s, backlog_s=settings.pool_backlog_s),
            longest_backoff_s=settings.worker_backoff_s,
            silent_s=2 * settings.lease_s,
        ),
    )


def front_of(home: Home, ways: Ways) -> Front:
    """Takes requests to workers; a loop calls its `step`."""
    kinds: dict[str, ModelKind] = {}

    def probe(model: str) -> LiveRequest:
        if model not in kinds:
            kinds[model] = home.registry.resolve(model).kind
        return probe_of(model, kinds[model], f"probe-{home.ids.token()}")

    return Front(ways=ways, watch=Watch(probe_of=probe, clock=home.clock), clock=home.clock)


def keeping_of(home: Home) -> Keeping:
    """What brings batches on; a loop calls its `step`."""
    settings = home.settings
    keeper = Keeper(
        store=home.store,
        intake=home.intake,
        models=home.registry,
        objects=home.objects,
        results=home.results,
        ids=home.ids,
        pools=lambda: home.pools,
        folder=lambda tenant, size: folder_of(home, tenant, size),
        policy=KeepPolicy(max_lines=settings.max_batch_lines),
    )
    return Keeping(
        keeper=keeper,
        threads=ThreadPoolExecutor(_KEEPERS, thread_name_prefix="batch"),
        quick=ThreadPoolExecutor(_KEEPERS, thread_name_prefix="small-batch"),
        clock=home.clock,
        tidy=lambda: home.store.forget_replays(settings.idempotency_keep_s),
    )


def delivering_of(home: Home) -> Delivering:
    """What calls webhooks; a loop calls its `step`."""
    deliverer = Deliverer(
        store=home.store,
        post=home.outward.calls.post,
        seal=home.outward.seal,
        clock=home.clock,
        now=home.store.now,
        chance=random.random,
    )
    policy = DeliveryPolicy()
    threads = ThreadPoolExecutor(policy.at_once, thread_name_prefix="webhook")
    return Delivering(deliverer=deliverer, threads=threads, clock=home.clock, policy=policy)


def file_sweeper_of(home: Home, older_than_s: float) -> FileSweeper:
    """Finds and deletes files that have been dead for so long: deleted, expired, of uploads that never ended."""
    return FileSweeper(
        store=home.store,
        objects=home.objects,
        folder=lambda tenant: tenant_folder(home.own_objects, tenant),
        older_than_s=older_than_s,
        keep_s=home.settings.idempotency_keep_s,
    )


def sweep_files(home: Home) -> int:
    """What a service does now and then; how many went. Raises Unavailable; anything else waits for the next time."""
    sweeper, gone = file_sweeper_of(home, _DEAD_S), 0
    try:
        for found in sweeper.find():
            sweeper.delete(found)
            gone += len(found)
    except Unavailable:
        raise
    except NightmillError as error:
        log.warning("files_not_swept", code=error.code, reason=error.sentence)
    log.info("files_swept", files=gone, skipped=[one.job for one in sweeper.skipped])
    return gone


def folder_of(home: Home, tenant: str, size: int | None) -> str:
    """Small things lie in the database, where a flush is shared: batches of a few lines come by the thousand."""
    small = size is not None and size <= _SMALL_BYTES
    return tenant_folder(SMALL_OBJECTS if small else home.own_objects, tenant)
