"""One engine kept full: rows of all open tasks go in by rank, finished rows come out, done tasks are settled.

The loop (`run`) owns the engine and the open work. Other threads only put things on its doorstep: `accept` (a leased
task), `heed` (what the beat learned), `drain`. Reading, rendering, writing and committing happen in two small pools, so
that the engine never waits for a disk.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future

import structlog

from jobs.errors import EngineDied, NightmillError
from jobs.model import Job, JobState, Priority, Task, Usage
from jobs.moves import Answer
from jobs.ports.clock import Clock
from jobs.ports.engine import Engine, EngineInfo, EngineResult, Occupancy
from jobs.ports.rows import OpenRows, RowSource
from jobs.ports.store import Progress
from workers.about import about, named_pool
from workers.feeder import feeder_of
from workers.given import OnFault, Opening, WorkerPolicy
from workers.live import LIVE, Live, nobody
from workers.orders import obey
from workers.reviving import Reviver
from workers.settler import Settler
from workers.settling import Settling
from workers.tally import Committed, Tally
from workers.work import SLOT_BITS, Spent, Work, suspects_go

log = structlog.get_logger()

_ROW_MASK = (1 << SLOT_BITS) - 1


class Worker:
    """Give it an engine that has been started (`info`); `run` returns after `drain`, with nothing in hand."""

    def __init__(
        self,
        *,
        engine: Engine,
        info: EngineInfo,
        source: RowSource,
        settler: Settler,
        clock: Clock,
        policy: WorkerPolicy,
        on_fault: OnFault | None = None,
        live: Live | None = None,
    ) -> None:
        self.live = live or nobody(engine, info, clock)
        self._engine = engine
        self._source = source
        self._settler = settler
        self._clock = clock
        self._policy = policy
        self._on_fault = on_fault
        self._feeder = feeder_of(engine, info, policy, on_entry=self._note_entry)
        self._orders: queue.SimpleQueue[Mapping[str, JobState | None]] = queue.SimpleQueue()
        self._opening: list[Opening] = []
        self._open: dict[int, Work] = {}
        self._settling = Settling(settler)
        self._slot = 0
        self._lock = threading.Lock()
        self._draining_since: float | None = None
        self._closed = False
        self._engine_is_down = False
        self._reviver = Reviver(
            engine=engine, clock=clock, restart=policy.restart, fruitless_deaths=policy.fruitless_deaths
        )
        self._readers = {p: named_pool(1, f"read-{p}") for p in Priority}
        self.tally = Tally()

    # ---- called from other threads --------------------------------------------------------------

    def accept(self, job: Job, task: Task) -> bool:
        """A task that was leased for this worker: its rows are read from now on.

        False after `run` has ended: it is left alone, and whoever closes the process hands it back.
        """
        with self._lock:
            if self._closed:
                with about(job, task):
                    log.warning("leased_after_drain")
                return False
            rows = self._readers[task.priority].submit(self._read, job, task)
            self._opening.append(Opening(job=job, task=task, rows=rows))
        return True

    def _read(self, job: Job, task: Task) -> OpenRows:
        with about(job, task):
            return self._source.open(job, task)

    def heed(self, answer: Mapping[str, JobState | None]) -> None:
        """What the beat learned of the tokens it asked for: their jobs' states; None: the lease is lost."""
        self._orders.put(answer)

    def drain(self, cause: str = "drain") -> None:
        """Take nothing more, let rows inside finish within the grace, commit them, give the rest back."""
        if self._draining_since is None:
            self._draining_since = self._clock.monotonic()
            self.live.doorstep.close("the worker drains")
            log.info("worker_drains", cause=cause)

    def room(self, priority: Priority = Priority.NORMAL) -> bool:
        """Whether another task of this priority is wanted."""
        return self.room_tokens(priority) > 0

    def room_tokens(self, priority: Priority) -> int:
        """How many more tokens of a priority are wanted, negative where it holds more; 0 if it wants none now."""
        with self._lock:
            tasks, works = [opening.task for opening in self._opening], list(self._open.values())
        busy = self._policy.lends and self.live.inside > 0
        return 0 if self.draining or busy else self._feeder.room_tokens(priority, tasks, works)

    @property
    def committed(self) -> Committed:
        return self._settler.committed

    def occupancy(self) -> Occupancy:
        """Of its engine."""
        return self._engine.occupancy()

    @property
    def draining(self) -> bool:
        return self._draining_since is not None

    def progress(self) -> list[Progress]:
        """Every lease in hand with what it has spent; read by the beat."""
        works = [w for w in (*self._open.values(), *self._settling.works) if not w.lost]
        held = [Progress(token=str(w.task.token), usage=w.finished.usage()) for w in works]
        return held + [Progress(token=str(o.task.token), usage=Spent().usage()) for o in self._opening]

    @property
    def open_tasks(self) -> int:
        """In hand, lost ones among them whose rows the engine still has."""
        return len(self._open) + len(self._settling.works) + len(self._opening)

    # ---- the loop -------------------------------------------------------------------------------

    def run(self) -> None:
        """Until drained. Raises what ended it: an engine that does not start again, a full disk, our own bugs."""
        try:
            while not (self.draining and self._idle()):
                self.step()
        finally:
            self.live.end("the worker has ended")
            with self._lock:
                self._closed = True
            for readers in self._readers.values():
                readers.shutdown(wait=False, cancel_futures=True)
            self._settling.close()

    def step(self) -> None:
        """One round: orders, new tasks, feed, collect, settle."""
        self._take_in()
        try:
            if self._engine_is_down:
                self._stop_all()
                self._clock.sleep(self._policy.poll_s)
            else:
                self._work()
        except EngineDied as death:
            self._bury(death)
        self._settle()

    def _work(self) -> None:
        self._obey()
        works = self._open.values()
        self.live.let_in(sum(len(w.inside) for w in works), alone=suspects_go(works, self._clock.monotonic()))
        self._feed_engine()
        results = self._engine.poll(self._wait_s())
        self.live.hear(self._engine.take_pieces())
        self._collect(results)

    def _idle(self) -> bool:
        return not (self._open or self._opening or self._settling.works or not self.live.idle)

    def _wait_s(self) -> float:
        if any(work.at_rest for work in self._open.values()):
            return 0.0
        return min(self._policy.poll_s, 0.005) if self._opening or self._settling.works else self._policy.poll_s

    def _obey(self) -> None:
        if self.draining:
            self._stop_all()
        while not self._orders.empty():
            for work in obey(self._engine, [*self._open.values()], self._orders.get()):
                self._note_lost(work)

    def _stop_all(self) -> None:
        late = self._clock.monotonic() - (self._draining_since or 0.0) > self._policy.drain_grace_s
        for work in self._open.values():
            work.stopping = True
            if late and work.inside:
                self._engine.abort(work.ids_inside())
        if late:
            self.live.stop_all()

    def _take_in(self) -> None:
        for opening in [opening for opening in self._opening if opening.rows.done()]:
            rows = self._rows_of(opening)
            with self._lock:  # its tokens are in one of the two lists whenever room is asked for
                self._opening.remove(opening)
                if rows is None:
                    continue
                self._slot += 1
                self._open[self._slot] = Work(
                    job=opening.job, task=opening.task, rows=rows, slot=self._slot, opened_s=self._clock.monotonic()
                )

    def _rows_of(self, opening: Opening) -> OpenRows | None:
        """None for a task that was given up."""
        try:
            return opening.rows.result()
        except NightmillError as error:
            if self._on_fault is None:
                raise
            self._on_fault(opening.job, opening.task, Usage(), error)
            return None

    def _feed_engine(self) -> None:
        now = self._clock.monotonic()
        works = list(self._open.values())
        pressed_s = self._feeder.pressed_s(now, self.live)
        for work in works:
            work.stopping |= now - work.opened_s > self._policy.open_s and work.finished.rows > 0
            work.stopping |= work.unfed > 0 and min(pressed_s, now - work.opened_s) > self._policy.yield_s
        self._feeder.feed(works, now, self.live)

    def _note_entry(self, work: Work) -> None:
        """The first of its rows is about to enter. The release was timed by the database's clock."""
        task = work.task
        if task.released_at is not None:
            self.tally.waits[task.priority].note(waited_s := max(0.0, self._clock.now() - task.released_at))
            with about(work.job, task):
                log.info("task_enters", priority=task.priority, waited_s=round(waited_s, 4))

    def _collect(self, results: list[EngineResult]) -> None:
        for result in results:
            if result.id >= LIVE:
                self.live.take(result)
                continue
            self.live.row_ended()
            if (work := self._open.get(result.id >> SLOT_BITS)) is None:
                continue
            work.file(result.id & _ROW_MASK, result)
            self._feeder.ended(work)
            self.tally.spent.add(result)
            self.tally.rows += result.finish_reason != "abort"

    def _settle(self) -> None:
        for work in [w for w in self._open.values() if w.at_rest]:
            self._forget(work)
            if not work.lost:
                self._settling.finish(work)
        for work, future in self._settling.over():
            if self._answer(future, work) is Answer.LOST:
                self._note_lost(work)

    def _answer(self, future: Future[Answer], work: Work) -> Answer | None:
        """None for a task that was given up."""
        try:
            return future.result()
        except NightmillError as error:
            if self._on_fault is None:
                raise
            self._on_fault(work.job, work.task, work.finished.usage().plus(work.aborted.usage()), error)
            return None

    def _note_lost(self, work: Work) -> None:
        self.tally.lost += 1
        with about(work.job, work.task):
            log.warning("lease_lost")

    def _forget(self, work: Work) -> None:
        with self._lock:
            del self._open[work.slot]

    # ---- death of the engine --------------------------------------------------------------------

    def _bury(self, death: EngineDied) -> None:
        """Settle every task that had rows inside, then start the engine again, with backoff; not when draining."""
        self.tally.engine_deaths += 1
        log.error("engine_died", reason=death.sentence, tasks=[w.task.id for w in self._open.values() if w.inside])
        for work in [w for w in self._open.values() if w.inside]:
            self._forget(work)
            if not work.lost:
                self._settling.after_death(work)
        self.live.bury(death.sentence)
        self._reviver.note(death, self.tally.rows + self.live.served)
        if self._draining_since is None:
            self._reviver.start_again()
            self.live.open_again()
        else:
            self._engine_is_down = True
