"""One process's whole Nightmill for one job: scheduler, dispatcher, beat and one worker, in threads.

The same parts run apart in a cluster; here they meet only through the ports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from jobs.errors import NightmillError, Unavailable, WrongState
from jobs.figures import Sample
from jobs.model import Job, JobState, Usage, Value
from jobs.ports.clock import Clock
from jobs.ports.queue import Queue
from jobs.ports.store import Store
from workers.beats import Beat
from workers.dispatcher import Dispatcher
from workers.figures import dispatcher_figures, pool_label, scheduler_figures, worker_figures
from workers.loops import Alarm, Loop
from workers.meter import Meter
from workers.reaper import end_lease
from workers.scheduler import Scheduler
from workers.worker import Worker

log = structlog.get_logger()

SHORTEST_TIMED_S = 2.0
FEWEST_TIMED_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Value):
    """What a progress view shows. The job's totals are committed and folded; generated: what this process's engine
    gave back; rows_before: committed before it began.

    rows_per_s, tokens_per_s: over the last seconds of work, 0.0 before the first row.
    """

    job: Job
    rows_before: int = 0
    generated_rows: int = 0
    generated: Usage = Usage()
    rows_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    engine_deaths: int = 0
    eta_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MillPolicy(Value):
    """tick_s: pause between scheduler steps; they are woken earlier by every lease.

    away_s: pause before a queue that did not answer is polled again.
    """

    tick_s: float = 0.1
    beat_s: float = 2.0
    speed_every_s: float = 10.0
    away_s: float = 0.5


class Mill:
    """`start`, then `watch` until the job rests, then `close`. Thread-safe: `drain`."""

    def __init__(
        self,
        *,
        job_id: str,
        store: Store,
        broker: Queue,
        scheduler: Scheduler,
        dispatcher: Dispatcher,
        worker: Worker,
        beat: Beat,
        clock: Clock,
        policy: MillPolicy,
    ) -> None:
        self.job_id = job_id
        self._owner = beat.owner
        self._topics = sorted(dispatcher.priorities)
        self._store = store
        self._broker = broker
        self._scheduler = scheduler
        self._worker = worker
        self._dispatcher = dispatcher
        self._clock = clock
        self._policy = policy
        self._alarm = Alarm()
        self._job = store.job(job_id)
        self._rows_before = self._job.usage.rows
        self._meter = Meter()
        self._started_s = self._speed_noted_s = clock.monotonic()
        self._speed_was_noted = False
        self._control = Loop("control", self._tick, self._alarm, every_s=policy.tick_s)
        self._poll = Loop("poll", lambda: self._poll_step(dispatcher), self._alarm)
        self._lease = Loop("lease", lambda: self._lease_step(dispatcher), self._alarm)
        self._beat = Loop("beat", beat.step, self._alarm, every_s=policy.beat_s)
        self._work = Loop("work", self._work_once, self._alarm)
        self._worker_done = False

    def start(self) -> None:
        for loop in (self._control, self._poll, self._lease, self._beat, self._work):
            loop.start()

    def drain(self, cause: str) -> None:
        """Finish what is inside the engine, commit it, give the rest back; then the worker is done."""
        self._worker.drain(cause)
        self._control.wake()

    def rest(self, timeout_s: float) -> bool:
        """Wait until the job is at rest (or the worker was drained, or a loop failed); whether it is.

        Raises what ended a loop.
        """
        self._alarm.wait(timeout_s)
        if self._alarm.error is not None:
            raise self._alarm.error
        return self._job.state.terminal or self._worker_done

    def snapshot(self) -> Snapshot:
        tally = self._worker.tally
        rate = self._meter.note(self._clock.monotonic(), tally.rows, tally.spent.output_tokens)
        left = self._job.total_rows - self._job.usage.rows
        return Snapshot(
            job=self._job,
            rows_before=self._rows_before,
            generated_rows=tally.rows,
            generated=tally.spent.usage(),
            rows_per_s=rate[0],
            output_tokens_per_s=rate[1],
            engine_deaths=tally.engine_deaths,
            eta_s=left / rate[0] if rate[0] > 0 else None,
        )

    def figures(self) -> Iterator[Sample]:
        """Of all its parts."""
        pool = self._job.pool
        yield from worker_figures(self._worker, pool, pool_label(pool))
        yield from dispatcher_figures(self._dispatcher, pool)
        yield from scheduler_figures(self._scheduler)

    def close(self) -> Job:
        """Stop the loops in the order that loses nothing; the job as the database has it."""
        self._worker.drain("stop")
        for loop in (self._poll, self._lease, self._work, self._beat, self._control):
            if not loop.stop(timeout_s=60.0):
                log.error("loop_stuck", job=self.job_id)
        self._scheduler.plans.close()
        try:
            self._note_speed_of_a_short_run()
            for task, usage in self._store.leased_by(self._owner):
                end_lease(self._store, task, usage, "stopped")
            self._job = self._scheduler.step(self.job_id)
            if self._job.state.terminal:
                self._remove_topics()
        except NightmillError as error:  # the first failure is the one to tell; what is left here, resume takes back
            log.warning("closing_failed", job=self.job_id, reason=error.sentence)
        return self._job

    def _remove_topics(self) -> None:
        """The pool was made for this job alone, and so were its topics."""
        for topic in self._topics:
            self._broker.delete_topic(topic)

    # ---- the steps ------------------------------------------------------------------------------

    def _tick(self) -> None:
        try:
            self._job = self._scheduler.step(self.job_id)
            self._note_speed()
        except Unavailable as error:
            if self._alarm.rang or error.code == "storage_full":
                raise
            log.warning("backend_away", reason=error.sentence)
        if self._job.state is JobState.PAUSED:
            self._worker.drain("paused")

    def _poll_step(self, dispatcher: Dispatcher) -> None:
        """A broker that is away is polled on; what it has not heard of is told again, or dropped as known."""
        try:
            dispatcher.poll_step()
        except Unavailable as error:
            if error.code == "storage_full":
                raise
            log.warning("queue_away", reason=error.sentence)
            self._clock.sleep(self._policy.away_s)

    def _lease_step(self, dispatcher: Dispatcher) -> None:
        if dispatcher.lease_step():
            self._control.wake()

    def _work_once(self) -> None:
        """The worker's own loop runs inside one step, until it is drained."""
        if self._worker_done:
            self._clock.sleep(0.05)
            return
        self._worker.run()
        self._worker_done = True
        self._control.wake()

    def _note_speed(self) -> None:
        now = self._clock.monotonic()
        if now - self._speed_noted_s < self._policy.speed_every_s:
            return
        self._speed_noted_s = now
        self._speed_was_noted = True
        seen = self.snapshot()
        if seen.rows_per_s > 0:
            self._store.note_speed(
                self._job.spec.model, rows_per_s=seen.rows_per_s, output_tokens_per_s=seen.output_tokens_per_s
            )

    def _note_speed_of_a_short_run(self) -> None:
        """A run that ended before the first note; so that a quote knows the model's speed after its first job."""
        passed = self._clock.monotonic() - self._started_s
        tally = self._worker.tally
        if self._speed_was_noted or passed < SHORTEST_TIMED_S or tally.rows < FEWEST_TIMED_ROWS or self._alarm.rang:
            return
        self._store.note_speed(
            self._job.spec.model,
            rows_per_s=tally.rows / passed,
            output_tokens_per_s=tally.spent.output_tokens / passed,
        )


def pause_for(store: Store, job_id: str, reason: str) -> Job:
    """Pause a running job because its process cannot go on; a job in another state stays as it is."""
    try:
        return store.set_state(job_id, expect=frozenset({JobState.RUNNING}), to=JobState.PAUSED, reason=reason)
    except WrongState:
        return store.job(job_id)
