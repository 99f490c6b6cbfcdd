"""A worker over a real process of the fake engine, its loop in a thread, and its door from near and from afar."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from infra.clocks import SystemClock
from infra.engines import EngineProcess
from infra.live import DoorServer, RemoteDoor
from jobs.moves import Answer
from jobs.ports.live import Door
from jobs.requests import Ended, LiveRequest, Posting, Said
from tests.support.engines import a_spec
from tests.support.live import Ear
from tests.support.rows import MemoryRows, MemorySink
from tests.support.store import a_store
from tests.support.values import a_job
from workers.doorstep import LivePolicy
from workers.given import WorkerPolicy
from workers.live import live_of
from workers.posting import Poster
from workers.settler import Settler
from workers.worker import Worker

PATIENCE_S = 30.0


class Waiting(Ear):
    """An ear that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = threading.Condition()

    def __call__(self, said: Said) -> None:
        with self._turn:
            super().__call__(said)
            self._turn.notify_all()

    def until(self, words: int) -> list[Said]:
        """So many words, or the end; fails rather than wait for ever."""
        with self._turn:
            assert self._turn.wait_for(lambda: len(self.said) >= words or self.ended, PATIENCE_S), self.said
            return list(self.said)

    def until_ended(self) -> Ended:
        self.until(1 << 30)
        assert self.ended is not None
        return self.ended


@dataclass(kw_only=True)
class Place:
    """`jobs.ports.live.Door` of a worker that runs. postings: what was written."""

    name: str = "w"
    worker: Worker
    engine: EngineProcess
    postings: list[Posting] = field(default_factory=list)

    def enter(self, request: LiveRequest, hear: Ear) -> None:
        self.worker.live.enter(request, hear)

    def leave(self, request_id: str) -> None:
        self.worker.live.leave(request_id)

    def load(self):
        return self.worker.live.load()

    def posted(self, request: LiveRequest) -> list[Posting]:
        return [posting for posting in self.postings if posting.id == request.id]


@contextmanager
def a_working_worker(folder: Path, *, kind: str = "chat", live: LivePolicy | None = None, **args) -> Iterator[Place]:
    """Its engine has these arguments of the fake engine."""
    engine, clock, postings = EngineProcess(a_spec(folder, kind=kind, engine_args=args)), SystemClock(), []

    def post(group: Sequence[Posting]) -> list[Answer]:
        postings.extend(group)
        return [Answer.MADE] * len(group)

    info = engine.start()
    poster = Poster(post=post, clock=clock)
    worker = Worker(
        engine=engine,
        info=info,
        source=MemoryRows(),
        settler=Settler(store=a_store(a_job()), sink=MemorySink(), clock=clock),
        clock=clock,
        policy=WorkerPolicy(drain_grace_s=0.2),
        live=live_of(engine, info, poster, clock, live or LivePolicy(), pool="pool", worker="w"),
    )
    thread = threading.Thread(target=worker.run, name="worker", daemon=True)
    thread.start()
    try:
        yield Place(worker=worker, engine=engine, postings=postings)
    finally:
        worker.drain()
        thread.join(PATIENCE_S)
        engine.stop()
        assert not thread.is_alive()


def serve(place: Place) -> DoorServer:
    live = place.worker.live
    return DoorServer(place, host="127.0.0.1", lose=live.lose, listen=live.doorstep.listen)


@contextmanager
def a_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """It runs in a thread, as a replica of the API has it."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


@contextmanager
def seen_from_afar(place: Place, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[Door]:
    """Its door over TCP, connected."""
    server = serve(place)
    door = RemoteDoor(place.name, server.address, server.secret, loop)
    try:
        until(lambda: door.load().open)
        yield door
    finally:
        door.close()
        server.close()


def until(condition, within_s: float = PATIENCE_S) -> None:
    """Fails rather than wait for ever."""
    pause, left = threading.Event(), within_s
    while not condition():
        assert left > 0, "it did not come about"
        pause.wait(0.01)
        left -= 0.01
