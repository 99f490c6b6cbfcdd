"""A worker on a bench: engine, database and files in memory, one thread, time that stands still."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from infra.clocks import ManualClock
from jobs import moves
from jobs.model import Job, Outcome, Priority, Task, TaskState
from jobs.moves import Answer, Lease
from tests.support.engine import ScriptedEngine
from tests.support.live import InlinePoster
from tests.support.rows import MemoryRows, MemorySink
from tests.support.store import BoardStore, a_store
from tests.support.values import a_job
from workers.doorstep import LivePolicy
from workers.given import WorkerPolicy
from workers.live import live_of
from workers.settler import Settler
from workers.settling import Settling
from workers.worker import Worker

T = TypeVar("T")


class Inline(Executor):
    """Runs what it is given at once, in the caller's thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # an executor keeps it for whoever asks
            future.set_exception(error)
        return future


class Later(Inline):
    """Runs nothing before `run`. given: so far."""

    def __init__(self) -> None:
        self.given: list[Callable[[], object]] = []
        self._done = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def carry_out() -> None:
            done = super(Later, self).submit(fn, *args, **kwargs)
            if (error := done.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result())

        self.given.append(carry_out)
        return future

    def run(self) -> None:
        """All of them, also what they give it meanwhile."""
        while self._done < len(self.given):
            self._done += 1
            self.given[self._done - 1]()


@dataclass(kw_only=True)
class Bench:
    """See `a_bench`. Tokens are `token-1`, `token-2` … in the order of leasing."""

    job: Job
    store: BoardStore
    engine: ScriptedEngine
    source: MemoryRows
    sink: MemorySink
    clock: ManualClock
    worker: Worker
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def lease(self, task_id: str, **told: Any) -> Task:
        """Release and lease a queued task, and hand it to the worker. told: what its message says beside."""
        number = next(self._numbers)
        task = self.store.board.tasks[task_id]
        release = moves.release(task, ticket=f"ticket-{number}", reserve_pico=1, leader=("pool", 1))
        assert release.message is not None
        lease = moves.lease(release.message, Lease(token=f"token-{number}", owner="w", lease_s=30))
        assert self.store.make([release]) + self.store.make([lease]) == [Answer.MADE, Answer.MADE]
        self.worker.accept(self.job, self.store.board.tasks[task_id].evolve(**told))
        return self.store.board.tasks[task_id]

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.worker.step()

    def beat(self) -> None:
        """What `workers.beats.Beat` does."""
        progress = self.worker.progress()
        held = self.store.beat("w", progress, 30)
        self.worker.heed({item.token: held.get(item.token) for item in progress})

    def work_off(self, most_steps: int = 1000) -> None:
        """Lease whatever is queued, children too, until nothing is open."""
        for _ in range(most_steps):
            for task in self.store.in_state(TaskState.QUEUED):
                self.lease(task.id)
            self.step()
            if not self.store.in_state(TaskState.QUEUED) and self.worker._idle():
                return
        msg = f"not done after {most_steps} steps: {self.store.states()}"
        raise AssertionError(msg)

    def outcomes(self) -> dict[int, Outcome]:
        """row → outcome, of all rows that count."""
        return self.sink.rows_of(self.store.board.manifest)


def a_bench(
    *tasks: Task,
    per_poll: int = 0,
    poison: tuple[str, ...] = (),
    faulty: tuple[int, ...] = (),
    max_num_seqs: int = 8,
    live: LivePolicy | None = None,
    **policy: Any,
) -> Bench:
    """An engine of eight seats (so 14 rows inside at most) that finishes `per_poll` rows a step. live: it takes
    requests too.
    """
    job = a_job()
    clock = ManualClock()
    store = a_store(job, *tasks)
    engine = ScriptedEngine(per_poll, poison, max_num_seqs)
    source, sink, poster = MemoryRows(faulty), MemorySink(), InlinePoster()
    worker = Worker(
        engine=engine,
        info=engine.start(),
        source=source,
        settler=Settler(store=store, sink=sink, clock=clock),
        clock=clock,
        policy=WorkerPolicy(**policy),
        live=None if live is None else live_of(engine, engine.info, poster, clock, live, pool="pool", worker="w"),
    )
    worker._readers = dict.fromkeys(Priority, Inline())  # type: ignore[arg-type]  # no threads in unit tests
    worker._settling = Settling(worker._settler, many=Inline(), few=Inline())  # as above
    return Bench(job=job, store=store, engine=engine, source=source, sink=sink, clock=clock, worker=worker)
