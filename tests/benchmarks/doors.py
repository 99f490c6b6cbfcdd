"""Pieces from a worker's process to another: our frames over TCP against Ray's streaming generators.

Paced: each stream gets a piece every 20 ms, as an engine's step gives all of them one; what is measured is the time
from saying to hearing. Unpaced: as many as go through. Both processes are on this machine, so that they share a clock.
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.live import DoorServer, RemoteDoor
from jobs.requests import End, Ended, Load, Piece, Said
from tests.support.live import a_live_request

STREAMS = (1, 8, 64)
PACE_S = 0.02
TEXT = " token"
Way = Callable[[int, int, float], tuple[list[float], float]]
"""(streams, pieces of each, pause between two) → (seconds from saying to hearing, of each piece; seconds of it all)."""


class Telling:
    """A door behind which every request is told pieces that say when they were said."""

    name = "w"

    def __init__(self) -> None:
        self._there: list[tuple[Any, int, float]] = []

    def enter(self, request: Any, hear: Callable[[Said], None]) -> None:
        """tags: how many pieces, after which pauses, of how many streams that begin together."""
        pieces, pause_s, together = int(request.tags["n"]), float(request.tags["pause"]), int(request.tags["of"])
        self._there.append((hear, pieces, pause_s))
        if len(self._there) == together:
            there, self._there = self._there, []
            threading.Thread(target=_tell, args=(there,), daemon=True).start()

    def leave(self, request_id: str) -> None: ...

    def load(self) -> Load:
        return Load(seats=64, open=True)


def _tell(there: list[tuple[Any, int, float]]) -> None:
    _, pieces, pause_s = there[0]
    for _ in range(pieces):
        for hear, _, _ in there:
            hear(Piece(0, f"{time.monotonic_ns()}{TEXT}", 1))
        if pause_s:
            time.sleep(pause_s)
    for hear, _, _ in there:
        hear(Ended(end=End.DONE))


def _serve(pipe: Any) -> None:
    server = DoorServer(Telling(), host="127.0.0.1", lose=lambda _: None, listen=lambda _: None)
    pipe.send((server.address, server.secret))
    pipe.recv()


@contextmanager
def frames():
    """Our own way."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs,), daemon=True)
    child.start()
    door = RemoteDoor("w", *ours.recv())
    while not door.load().open:
        time.sleep(0.01)
    yield lambda streams, pieces, pause_s: _hear(door, streams, pieces, pause_s)
    door.close()
    ours.send(None)
    child.join()


def _hear(door: RemoteDoor, streams: int, pieces: int, pause_s: float) -> tuple[list[float], float]:
    late: list[float] = []
    left = threading.Semaphore(0)

    def hear(said: Said) -> None:
        if isinstance(said, Piece):
            late.append((time.monotonic_ns() - int(said.text.removesuffix(TEXT))) / 1e9)
        else:
            left.release()

    began = time.monotonic()
    tags = {"n": str(pieces), "pause": str(pause_s), "of": str(streams)}
    for _ in range(streams):
        door.enter(a_live_request(tags=tags), hear)
    for _ in range(streams):
        left.acquire()
    return late, time.monotonic() - began


class Streamer:
    """An actor with as many streams as are asked of it."""

    async def tell(self, pieces: int, pause_s: float) -> AsyncIterator[tuple[int, str, int]]:
        for _ in range(pieces):
            yield (0, f"{time.monotonic_ns()}{TEXT}", 1)
            if pause_s:
                await asyncio.sleep(pause_s)


@contextmanager
def generators():
    """Ray's way."""
    import ray  # noqa: PLC0415 - it is not always there

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 << 20,
        log_to_driver=False,
        logging_level="error",
    )
    actor = ray.remote(Streamer).options(max_concurrency=128, num_cpus=0).remote()

    async def one(pieces: int, pause_s: float, late: list[float]) -> None:
        async for ref in actor.tell.options(num_returns="streaming").remote(pieces, pause_s):
            _, text, _ = await ref
            late.append((time.monotonic_ns() - int(text.removesuffix(TEXT))) / 1e9)

    async def all_of(streams: int, pieces: int, pause_s: float) -> list[float]:
        late: list[float] = []
        await asyncio.gather(*(one(pieces, pause_s, late) for _ in range(streams)))
        return late

    def way(streams: int, pieces: int, pause_s: float) -> tuple[list[float], float]:
        began = time.monotonic()
        late = asyncio.run(all_of(streams, pieces, pause_s))
        return late, time.monotonic() - began

    yield way
    ray.shutdown()


def run(folder: Path, *, seconds: float) -> None:
    """Print both ways, one after the other: Ray's processes rest on the cores while the other runs."""
    ways: dict[str, Any] = {"TCP frames": frames}
    if importlib.util.find_spec("ray") is not None:
        ways["Ray generators"] = generators
    print(f"{'':16}{'streams':>8}{'p50':>9}{'p99':>9}{'items/s':>10}{'unpaced':>10}")
    for name, opened in ways.items():
        with opened() as way:
            way(1, 20, 0.0)
            for streams in STREAMS:
                late, passed = way(streams, int(seconds / PACE_S), PACE_S)
                all_late, all_passed = way(streams, 8000 // streams, 0.0)
                low, high = 1000 * statistics.median(late), 1000 * statistics.quantiles(late, n=100)[98]
                rate, most = len(late) / passed, len(all_late) / all_passed
                print(f"{name:16}{streams:>8}{low:>7.2f}ms{high:>7.2f}ms{rate:>10,.0f}{most:>10,.0f}", flush=True)
