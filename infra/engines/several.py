"""Several engine processes behind one port, sharing a worker's accelerators or cores.

One process spends much of a short row's time in its own front end, on one core: for small embedding models two or more
do together what one cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from infra.cores import allowed_cpus
from infra.engines.environment import is_cpu_build
from infra.engines.link import Bell, wait
from infra.engines.process import LOOK_S, EngineProcess
from infra.engines.spec import EngineSpec
from jobs.errors import EngineDied, EngineStartFailed
from jobs.ports.engine import EngineInfo, EnginePiece, EngineRequest, EngineResult, Occupancy, RequestProfile

T = TypeVar("T")
MEMORY_SHARE = 0.9
"""Of a GPU's memory, for all of them together: what vLLM takes for one."""


class SeveralEngines:
    """Implements `jobs.ports.engine.Engine`, with the further methods of `EngineProcess`.

    They live and die together: the death of one ends all, since the port knows one death and one start.
    """

    def __init__(self, specs: Sequence[EngineSpec], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.spec = specs[0]
        self._clock = clock
        self._engines = [EngineProcess(spec, clock=clock) for spec in specs]
        self._chunk = 1
        self._pieces: list[EnginePiece] = []
        self._bell = Bell()
        self.wake = self._bell.ring
        self._death: EngineDied | None = None

    # ---- life ------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Begin to start all, and return at once. Raises EngineStartFailed."""
        self._death = None
        self._together(lambda engine: engine.launch())

    def start(self) -> EngineInfo:
        """See the port."""
        while (info := self.ready(LOOK_S)) is None:
            pass
        return info

    def ready(self, wait_s: float) -> EngineInfo | None:
        """Wait for the start this long at most; None while it goes on. One that fails ends all."""
        self.launch()
        until = self._clock() + wait_s
        infos = self._together(lambda engine: engine.ready(max(0.0, until - self._clock())))
        started = [info for info in infos if info is not None]
        if len(started) < len(self._engines):
            return None
        self._chunk = max(1, started[0].max_num_seqs // 4)
        return replace(
            started[0],
            max_num_seqs=sum(info.max_num_seqs for info in started),
            kv_cache_tokens=sum(info.kv_cache_tokens for info in started),
            start_s=max(info.start_s for info in started),
        )

    def stop(self) -> None:
        """See the port."""
        for engine in self._engines:
            engine.stop()
        self._pieces.clear()

    def kill(self) -> None:
        """End all at once. From a signal handler too."""
        for engine in self._engines:
            engine.kill()

    # ---- work ------------------------------------------------------------------------------------

    def check_schema(self, schema: str) -> None:
        """See the port: they are all alike."""
        self._engines[0].check_schema(schema)

    def ask_schema(self, schema: str) -> Future[str | None]:
        """See `EngineProcess`."""
        return self._engines[0].ask_schema(schema)

    def submit(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        """See the port. Neighbours stay together, since they may share a prefix; the emptiest has the next of them."""
        self._require_alive()
        for at in range(0, len(requests), self._chunk):
            engine = min(self._engines, key=lambda engine: engine.in_flight())
            try:
                engine.submit(profile, requests[at : at + self._chunk])
            except EngineDied as death:
                self._death = death
                self.kill()
                raise

    def poll(self, timeout_s: float) -> list[EngineResult]:
        """See the port. A death is told once what came before it was returned."""
        self._require_alive()
        results = self._collect()
        if results or self._pieces or timeout_s <= 0:
            return results
        links = [link for engine in self._engines if (link := engine.link) is not None]
        wait(links, self._bell, min(timeout_s, LOOK_S))
        return self._collect()

    def take_pieces(self) -> list[EnginePiece]:
        """See the port."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def abort(self, ids: Sequence[int]) -> None:
        """See the port: each knows its own."""
        for engine in self._engines:
            engine.abort(ids)

    def in_flight(self) -> int:
        """See the port."""
        return sum(engine.in_flight() for engine in self._engines)

    def tokens_moved(self) -> int:
        """See the port."""
        return sum(engine.tokens_moved() for engine in self._engines)

    def occupancy(self) -> Occupancy:
        """Rows of all; the fullest cache."""
        found = [engine.occupancy() for engine in self._engines]
        uses = [each.kv_use for each in found if each.kv_use is not None]
        return Occupancy(
            running=sum(each.running for each in found),
            waiting=sum(each.waiting for each in found),
            kv_use=max(uses, default=None),
        )

    # ---- inside ----------------------------------------------------------------------------------

    def _collect(self) -> list[EngineResult]:
        results: list[EngineResult] = []
        for engine in self._engines:
            try:
                results += engine.poll(0.0)
            except EngineDied as death:
                self._death = death
            self._pieces += engine.take_pieces()
        if self._death is not None:
            self.kill()
            if not (results or self._pieces):
                raise self._death
        return results

    def _require_alive(self) -> None:
        if self._death is not None:
            self._pieces.clear()
            raise self._death

    def _together(self, step: Callable[[EngineProcess], T]) -> list[T]:
        try:
            return [step(engine) for engine in self._engines]
        except EngineStartFailed:
            self.kill()
            raise


def shares(spec: EngineSpec, count: int) -> list[EngineSpec]:
    """The specs of so many processes that share what one would have: cores, memory for the cache, a GPU's memory."""
    args = dict(spec.engine_args)
    if spec.backend == "vllm" and not is_cpu_build():
        args.setdefault("gpu_memory_utilization", round(MEMORY_SHARE / count, 3))
    return [
        replace(
            spec,
            engine_args=args,
            env={**_cores(spec, number, count), **spec.env},
            cpu_kv_cache_gib=max(1, spec.cpu_kv_cache_gib // count),
            log_path=spec.log_path.with_stem(f"{spec.log_path.stem}-{number}"),
        )
        for number in range(count)
    ]


def _cores(spec: EngineSpec, number: int, count: int) -> dict[str, str]:
    """Each computes on cores of its own, where there are enough of them."""
    cpus = allowed_cpus()
    if spec.backend != "vllm" or not is_cpu_build() or len(cpus) < count:
        return {}
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus[number::count]))}
