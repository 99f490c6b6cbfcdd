"""A worker on simulated time with the fake engine's own clockwork: how full the engine is, counted step by step.

Work reaches it as in a cluster: its room is looked at now and then, a task is leased a moment later, and its rows are
read after another moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from infra.clocks import ManualClock
from infra.engines.fake_answers import Flavour, flavour_of
from infra.engines.fake_args import FakeArgs
from infra.engines.fake_core import FakeCore
from jobs import moves
from jobs.model import Job, Priority, Task, TaskState
from jobs.moves import Lease
from jobs.ports.engine import Engine, EngineInfo, EnginePiece, EngineRequest, EngineResult, Occupancy, RequestProfile
from tests.support.bench import Inline
from tests.support.engine import an_info
from tests.support.rows import MemoryRows, MemorySink
from tests.support.store import BoardStore, a_store
from tests.support.values import a_job, a_task, span
from workers.crews import Crowd
from workers.given import WorkerPolicy
from workers.settler import Settler
from workers.settling import Settling
from workers.worker import Worker

STEP_S, LOOK_S, HAND_OVER_S, READ_S = 0.01, 0.2, 0.05, 0.1


class CoreEngine(Engine):
    """`FakeCore` in the caller's thread, on his clock. counts: rows that it computed after each poll."""

    def __init__(self, args: FakeArgs, clock: ManualClock) -> None:
        self._core, self._clock, self._args = FakeCore(args), clock, args
        self._flavours: dict[str, Flavour] = {}
        self.counts: list[int] = []

    def start(self) -> EngineInfo:
        return an_info(self._args.max_num_seqs)

    def check_schema(self, schema: str) -> None: ...

    def submit(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        flavour = self._flavours.setdefault(profile.key, flavour_of(profile))
        self._core.add(flavour, requests)

    def poll(self, timeout_s: float) -> list[EngineResult]:
        done = self._core.advance(self._clock.monotonic())
        self.counts.append(self.occupancy().running)
        return done

    def take_pieces(self) -> list[EnginePiece]:
        return self._core.take_pieces()

    def wake(self) -> None: ...

    def abort(self, ids: Sequence[int]) -> None:
        self._core.abort(ids)

    def in_flight(self) -> int:
        found = self.occupancy()
        return found.running + found.waiting

    def tokens_moved(self) -> int:
        return self._core.moved

    def occupancy(self) -> Occupancy:
        return self._core.occupancy()

    def stop(self) -> None: ...


class Later(Executor):
    """Does what it is given when its time has come: `due`."""

    def __init__(self, clock: ManualClock, after_s: float) -> None:
        self._clock, self._after_s = clock, after_s
        self._waiting: list[tuple[float, Callable[[], None]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        at = self._clock.monotonic() + self._after_s
        self._waiting.append((at, lambda: future.set_result(fn(*args, **kwargs))))
        return future

    def due(self) -> None:
        now = self._clock.monotonic()
        ready = [do for at, do in self._waiting if at <= now]
        self._waiting = [(at, do) for at, do in self._waiting if at > now]
        for do in ready:
            do()


@dataclass(kw_only=True)
class Simulation:
    """A pool of one worker. held: rows that waited in it, or on their way to it, at each step."""

    store: BoardStore
    engine: CoreEngine
    worker: Worker
    clock: ManualClock
    readers: Later
    hands: Later
    crowd: Crowd
    held: list[int] = field(default_factory=list)
    _looked_s: float = -LOOK_S

    def step(self) -> None:
        """The worker's loop once, and what its dispatcher does meanwhile."""
        if self.clock.monotonic() - self._looked_s >= LOOK_S:
            self._looked_s = self.clock.monotonic()
            self.crowd.seen({"w": {p: self.worker.room_tokens(p) for p in Priority}})
        for task in self.store.in_state(TaskState.QUEUED):
            if not self.crowd.room(task.priority):
                break
            self._lease(task)
        self.hands.due()
        self.readers.due()
        self.worker.step()
        leased = sum(task.rows for task in self.store.in_state(TaskState.LEASED))
        self.held.append(leased - self.engine.in_flight())
        self.clock.advance(STEP_S)

    def _lease(self, task: Task) -> None:
        release = moves.release(task, ticket=task.id, reserve_pico=1, leader=("pool", 1))
        assert release.message is not None
        self.store.make([release])
        self.store.make([moves.lease(release.message, Lease(token=task.id, owner="w", lease_s=1e9))])
        self.crowd.accept(a_job(), self.store.board.tasks[task.id])


def a_simulation(*, tasks: int, rows: int, args: FakeArgs, **task: Any) -> Simulation:
    """So many tasks of so many rows."""
    clock = ManualClock()
    job: Job = a_job()
    found = [a_task(id=f"j.{n}", ranges=span(n * rows, n * rows + rows), rows=rows, **task) for n in range(tasks)]
    store, engine = a_store(job, *found), CoreEngine(args, clock)
    worker = Worker(
        engine=engine,
        info=engine.start(),
        source=MemoryRows(),
        settler=Settler(store=store, sink=MemorySink(), clock=clock),
        clock=clock,
        policy=WorkerPolicy(),
    )
    readers, hands = Later(clock, READ_S), Later(clock, HAND_OVER_S)
    worker._readers = dict.fromkeys(Priority, readers)  # type: ignore[arg-type]
    worker._settling = Settling(worker._settler, many=Inline(), few=Inline())

    def hand(leased_job: Job, leased: Task) -> bool:
        hands.submit(worker.accept, leased_job, leased)
        return True

    crowd = Crowd(hand=hand, give_back=lambda _: None)
    return Simulation(store=store, engine=engine, worker=worker, clock=clock, readers=readers, hands=hands, crowd=crowd)
