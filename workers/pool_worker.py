"""A worker of a pool in a process of its own: its engine, its beat, its life from start to drained."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars

from jobs.errors import NightmillError, StorageFull, Unavailable
from jobs.figures import Sample
from jobs.model import Job, Priority, Task, Usage
from jobs.ports.engine import EngineInfo
from jobs.ports.live import Hear
from jobs.ports.store import Store
from jobs.requests import End, Ended, LiveRequest, Load
from workers.about import about
from workers.beats import Beat
from workers.figures import worker_figures
from workers.loops import Alarm, Loop
from workers.meter import Meter
from workers.mill import pause_for
from workers.reaper import end_lease
from workers.reports import Phase, Report
from workers.worker import Worker

log = structlog.get_logger()

_SPEED_EVERY_S = 10.0
_SCHEMA_S = 15.0
_STARTS_S = 5.0


@dataclass(slots=True, kw_only=True)
class PoolWorker:
    """`live` in a thread of its own; the other methods from any. It is a `jobs.ports.live.Door`, too.

    start_engine: waits for the engine, asking the callable now and then whether to give up; None if it did. make:
    the worker over the started engine. stop_engine: ends it. ask_schema: what it says against an output schema, None if
    nothing; it answers while it is polled. place: what the worker's report says of where it is. lends: see `accept`.
    """

    place: Report
    store: Store
    start_engine: Callable[[Callable[[], bool]], EngineInfo | None]
    make: Callable[[EngineInfo], Worker]
    stop_engine: Callable[[], None]
    ask_schema: Callable[[str], Future[str | None]]
    model: str
    beat_s: float
    lease_s: float
    lends: bool = False
    _phase: Phase = Phase.STARTING
    _reason: str = ""
    _stays: bool = False
    _worker: Worker | None = None
    _ready_s: float = 0.0
    _listeners: list[Callable[[], None]] = field(default_factory=list)
    _asked: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _meter: Meter = field(default_factory=Meter)
    _metering: threading.Lock = field(default_factory=threading.Lock)

    def live(self) -> None:
        """Until drained, or until what cannot be helped. Afterwards nothing is in its hands."""
        bind_contextvars(worker=self.place.name, pool=self.place.pool)  # the thread is ours until its end
        try:
            self._live()
            self._phase = Phase.DRAINING if self._stays else Phase.DRAINED
        except BaseException as error:  # the process's edge: whoever supervises reads the reason and replaces us
            self._reason = error.sentence if isinstance(error, NightmillError) else repr(error)
            log.error("worker_failed", reason=self._reason, exc_info=error)
            self._phase = Phase.FAILED
        finally:
            self._over.set()

    @property
    def name(self) -> str:
        """As its report has it."""
        return self.place.name

    def enter(self, request: LiveRequest, hear: Hear) -> None:
        """See the port. Refused until its engine runs."""
        if self._worker is not None:
            self._worker.live.enter(request, hear)
        else:
            hear(Ended(end=End.REFUSED, retry_after_s=_STARTS_S, reason=f"worker {self.name} starts"))

    def leave(self, request_id: str) -> None:
        """See the port."""
        if self._worker is not None:
            self._worker.live.leave(request_id)

    def lose(self, request_id: str) -> None:
        """As `leave`, of one that may be asked elsewhere: nobody pays."""
        if self._worker is not None:
            self._worker.live.lose(request_id)

    def load(self) -> Load:
        """See the port."""
        return self._worker.live.load() if self._worker is not None else Load()

    def listen(self, changed: Callable[[], None]) -> None:
        """changed: called whenever its load may have changed. Cheap."""
        self._listeners.append(changed)

    def accept(self, job: Job, task: Task) -> bool:
        """Whether the task is in our hands now. One that lends takes none under suspicion: its engine serves others."""
        if self.lends and task.suspect:
            return False
        worker = self._worker
        with bound_contextvars(worker=self.place.name, pool=self.place.pool):
            return worker is not None and self._phase is Phase.RUNNING and worker.accept(job, task)

    def refusal_of(self, schema: str) -> tuple[bool, str | None]:
        """(whether the engine was asked, what it says against an output schema)."""
        if self._phase is not Phase.RUNNING:
            return False, None
        try:
            return True, self.ask_schema(schema).result(_SCHEMA_S)
        except (TimeoutError, CancelledError):  # it is down, or busier than we may wait for
            return False, None

    def drain(self, cause: str, *, stay: bool = False) -> None:
        """Take nothing more; commit what is finished, give back the rest, end the engine.

        stay: the machine is to be taken away. It is not said to be drained, even once it is: it holds its place.
        """
        self._stays = self._stays or stay
        self._asked.set()
        if self._phase is Phase.RUNNING:
            self._phase = Phase.DRAINING
        if self._worker is not None:
            with bound_contextvars(worker=self.place.name, pool=self.place.pool):
                self._worker.drain(cause)

    def wait(self, timeout_s: float) -> bool:
        """Until nothing is in its hands any more; whether that is so."""
        return self._over.wait(timeout_s)

    def report(self) -> Report:
        """How it is now."""
        worker = self._worker
        if worker is None:
            return self.place.evolve(phase=self._phase, reason=self._reason, going=self._stays)
        with self._metering:
            rate = self._meter.note(time.monotonic(), worker.tally.rows, worker.tally.spent.output_tokens)
        room = {p: max(0, worker.room_tokens(p)) for p in Priority} if self._phase is Phase.RUNNING else {}
        return self.place.evolve(
            phase=self._phase,
            reason=self._reason,
            room=room,
            open_tasks=worker.open_tasks,
            rows=worker.tally.rows,
            output_tokens=worker.tally.spent.output_tokens,
            rows_per_s=round(rate[0], 3),
            engine_deaths=worker.tally.engine_deaths,
            uptime_s=round(time.monotonic() - self._ready_s, 1),
            going=self._stays,
            requests=worker.live.inside,
        )

    def figures(self) -> Iterator[Sample]:
        """None while its engine starts."""
        if self._worker is not None:
            yield from worker_figures(self._worker, self.place.pool, self.place.name)

    def give_up(self, job: Job, task: Task, usage: Usage, error: NightmillError) -> None:
        """`workers.worker.OnFault`: the task goes back; what asking again cannot mend pauses its job."""
        with about(job, task):
            self._give_up(job, task, usage, error)

    def _give_up(self, job: Job, task: Task, usage: Usage, error: NightmillError) -> None:
        log.error("task_given_up", reason=error.sentence)
        try:
            if isinstance(error, StorageFull) or not isinstance(error, Unavailable):
                pause_for(self.store, job.id, error.sentence)
            end_lease(self.store, task, usage, "fault")
        except Unavailable as away:  # then its lease runs out
            log.warning("task_left", reason=away.sentence)

    # ---- inside ---------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            info = self.start_engine(self._asked.is_set)
            if info is None:
                return
            worker = self.make(info)
            worker.live.doorstep.listen(self._tell_listeners)
            self._worker = worker
            self._ready_s = time.monotonic()
            self._phase = Phase.RUNNING
            if self._asked.is_set():
                self.drain("drain")
            self._tell_listeners()
            self._work(worker)
        finally:
            self.stop_engine()

    def _tell_listeners(self) -> None:
        for changed in self._listeners:
            changed()

    def _work(self, worker: Worker) -> None:
        alarm = Alarm()
        beat = Beat(store=self.store, worker=worker, owner=self.place.owner, beat_s=self.beat_s, lease_s=self.lease_s)
        beating = Loop("beat", beat.step, alarm, every_s=self.beat_s)
        noting = Loop("speed", self._note_speed, alarm, every_s=_SPEED_EVERY_S)
        beating.start()
        noting.start()
        try:
            worker.run()
        finally:
            noting.stop()
            beating.stop()
            self._hand_back()
        if alarm.error is not None:
            raise alarm.error

    def _hand_back(self) -> None:
        try:
            for task, usage in self.store.leased_by(self.place.owner):
                end_lease(self.store, task, usage, "stopped")
        except Unavailable as away:  # then they run out
            log.warning("leases_left", owner=self.place.owner, reason=away.sentence)

    def _note_speed(self) -> None:
        """For the planner's task sizes; only while there is work."""
        seen = self.report()
        if not seen.open_tasks or seen.rows_per_s <= 0:
            return
        tokens = seen.output_tokens / max(1.0, seen.uptime_s)
        try:
            self.store.note_speed(self.model, rows_per_s=seen.rows_per_s, output_tokens_per_s=tokens)
        except Unavailable as away:
            log.warning("speed_unnoted", reason=away.sentence)
