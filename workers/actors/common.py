"""What the actors share: their names, loops that wait for a backend, and the roster of a pool."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import ray
import structlog
from ray.exceptions import RayError
from ray.util import list_named_actors

from infra.settings import Settings
from jobs.errors import BadSchema
from jobs.pools import Pool
from workers.about import named_thread
from workers.loops import Alarm, steady
from workers.reports import Report, decode

log = structlog.get_logger()

FLEET, SCHEDULER, DISPATCHER, WORKER = "fleet", "scheduler", "dispatcher.", "worker."
"""Names of actors; the last two go on with the pool's or the worker's name."""

LOOK_S = 0.2
ROLL_CALL_S = 1.0
FAULT_EXIT = 70
SCHEMA_S = 20.0
CALLS = 16
"""Calls that an actor answers at a time: none of them takes long."""


def namespace(settings: Settings) -> str:
    """Several Nightmills may share a Ray cluster, if their topics' prefixes differ."""
    return f"{settings.topic_prefix}-cluster"


class Fatal(Alarm):
    """A loop that failed ends the process: whoever supervises it starts another, from the database."""

    def ring(self, error: BaseException) -> None:
        log.critical("process_ends", error=repr(error), exc_info=error)
        sys.stderr.flush()
        os._exit(FAULT_EXIT)


def in_background(name: str, work: Callable[[], None]) -> None:
    """Do the work in a thread, again and again until no backend is away.

    A constructor must not fail for that: Ray does not repeat one that raised.
    """
    done = threading.Event()

    def attempt() -> None:
        if not done.is_set():
            work()
            done.set()

    def run() -> None:
        try:
            while not done.is_set():
                steady(attempt)()
        except BaseException as error:  # noqa: BLE001 - the thread's edge
            Fatal().ring(error)

    named_thread(name, run).start()


def named_actors(space: str | None = None) -> list[str]:
    """Names of the actors that are not dead. space: a namespace other than that of this process."""
    if space is None:
        return list(list_named_actors())
    return [str(actor["name"]) for actor in list_named_actors(all_namespaces=True) if actor["namespace"] == space]


def workers_of(pool: str, space: str | None = None) -> list[str]:
    """Names of the workers of a pool that are not dead, as Ray has them. space: see `named_actors`."""
    prefix = f"{WORKER}{pool}-"
    names = [name.removeprefix(WORKER) for name in named_actors(space) if name.startswith(prefix)]
    return sorted(name for name in names if name.rpartition("-")[0] == pool)


class Roster:
    """Handles of the workers of a pool, looked up once, and what they report. space: see `named_actors`."""

    def __init__(self, space: str | None = None) -> None:
        self._space = space
        self._handles: dict[str, Any] = {}

    def handle(self, name: str) -> Any:
        """None if it is gone."""
        if name not in self._handles:
            try:
                self._handles[name] = ray.get_actor(WORKER + name, namespace=self._space)
            except ValueError:
                return None
        return self._handles[name]

    def reports(self, names: Sequence[str], timeout_s: float) -> dict[str, Report]:
        """Of those that answer in time."""
        self._handles = {name: handle for name, handle in self._handles.items() if name in names}
        asked = {handle.report.remote(): name for name in names if (handle := self.handle(name)) is not None}
        ready, _ = ray.wait([*asked], num_returns=len(asked), timeout=timeout_s) if asked else ([], [])
        found = {}
        for ref in ready:
            try:
                found[asked[ref]] = decode(ray.get(ref))
            except RayError:
                self._handles.pop(asked[ref], None)
        return found


def actor_class(kind: type) -> Any:
    """A class as Ray has it."""
    return ray.remote(kind)


def lasting(kind: type, name: str, **more: Any) -> Any:
    """An actor that Ray starts again whenever its process dies, beside which no second one of its name is made."""
    return actor_class(kind).options(
        name=name,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_concurrency=CALLS,
        num_cpus=0,
        **more,
    )


def end_actor(name: str) -> None:
    """For good: Ray does not start it again."""
    try:
        ray.kill(ray.get_actor(name), no_restart=True)
    except ValueError:
        return


def refusal_of(pool: str, schema: str) -> str | None:
    """What an engine of the pool says against an output schema; None if nothing, or if none could be asked."""
    for name in workers_of(pool):
        try:
            answer = ray.get_actor(WORKER + name).refusal_of.remote(schema)
            asked, refusal = orjson.loads(ray.get(answer, timeout=SCHEMA_S))
        except (RayError, ValueError) as error:
            log.info("schema_unasked", worker=name, reason=repr(error))
            continue
        if asked:
            return None if refusal is None else str(refusal)
    return None


def can_follow(pool: Pool, schema: str) -> None:
    """`jobs.submit.SchemaCheck`."""
    if (refusal := refusal_of(pool.name, schema)) is not None:
        raise BadSchema(reason=refusal)
