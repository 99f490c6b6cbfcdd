"""Runs one job in this process until it rests: engine, mill, view, and what Ctrl-C means."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import click

from api.cli.exits import Exit
from api.cli.view import View
from infra.bootstrap import Home
from infra.engines.known_args import check_engine_args
from infra.engines.process import EngineProcess
from jobs.ending import PauseRule, open_tasks
from jobs.errors import JobOwned, NightmillError
from jobs.model import Job, JobState, Model, Outcome
from jobs.ports.engine import EngineInfo
from workers.about import about
from workers.main import database_figures, end_without_engine, open_mill, owned, plan_first, plans_of, show, tidy
from workers.mill import Mill, Snapshot, pause_for

LOOK_S = 0.1
FAKE = "FAKE ENGINE: the outputs of this job are made up, not a model's. Use it for trying and testing only."
STOPPING = "Stopping: rows in the engine may finish, then all finished rows are committed. Ctrl-C again stops at once."


@dataclass(slots=True)
class Stops:
    """Ctrl-C or SIGTERM: once asks for a drain, twice ends the process at once. job_id: once there is a job."""

    engine: EngineProcess
    job_id: str = ""
    asked: threading.Event = field(default_factory=threading.Event)

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked.is_set():
            try:
                self.engine.kill()
            finally:  # it may fail where another thread is ending the engine: that goes with this process anyway
                goes_on = f"nightmill resume {self.job_id or 'last'}"
                os.write(2, f"\nStopped at once; what was committed is kept. Go on with: {goes_on}\n".encode())
                os._exit(Exit.INTERRUPTED)
        self.asked.set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def engine_for(home: Home, model: Model, engine_args: dict[str, object]) -> EngineProcess:
    """The engine of a model, not yet started. Raises BadInput naming an argument that it does not know."""
    check_engine_args(model.engine, engine_args, source="--engine-arg")
    return home.making.one(model, engine_args, f"engine-{model.name}-{os.getpid()}")


def pause_rule(home: Home, job: Job, *, resumed: bool) -> PauseRule:
    """A person who resumes knows what came so far: only later rows may pause the job again.

    A sample that was finished when the job was paused is behind us; one that was cut short is not.
    """
    behind = job.state is JobState.PAUSED and open_tasks(home.store.task_counts(job.id)) == 0
    return PauseRule(
        least_rows=home.settings.pause_min_rows,
        seen=job.usage if resumed else PauseRule().seen,
        after_sample=not (resumed and behind),
    )


def drive(
    home: Home, job: Job, engine: EngineProcess, view: View, *, pause: PauseRule, stops: Stops | None = None
) -> Exit:
    """Run a job that this process may own; prints its end and gives the exit code. stops: that listen already.

    What cannot go on (no engine, no disk) leaves the job paused with the reason. A job that is finished already, by an
    earlier run with the same idempotency key, is only told.
    """
    if job.state.terminal:
        tidy(home)  # that run may have died before `_SUCCESS`
        return _end(view, job, None, 0.0)
    with about(job):
        return _drive_to_its_end(home, job, view, pause, stops or Stops(engine, job.id))


def _drive_to_its_end(home: Home, job: Job, view: View, pause: PauseRule, stops: Stops) -> Exit:
    try:
        code = _drive(home, job, view, pause, stops)
    except NightmillError:
        _end_if_cancelled(home, home.store.job(job.id), view)
        raise
    return _end_if_cancelled(home, home.store.job(job.id), view) or code


def _end_if_cancelled(home: Home, job: Job, view: View) -> Exit | None:
    """Who cancelled the job while this process was on its way in or out found it held, and left its end to us."""
    if not job.state.ending:
        return None
    try:
        return _end(view, end_without_engine(home, job), None, 0.0)
    except JobOwned:  # it was cancelled once more, and that process ends it
        return Exit.NOT_COMPLETED


def _drive(home: Home, job: Job, view: View, pause: PauseRule, stops: Stops) -> Exit:
    engine = stops.engine
    with owned(home, job.id) as owner, stops.listening():
        tidy(home)
        if job.state is JobState.PAUSED:
            job = _set_running(home, job)
        plans = plans_of(home)
        try:
            info = _start(engine, view, stops, lambda: plan_first(home, plans, job.id))
            if info is None:
                return _end(view, pause_for(home.store, job.id, "stopped before its engine had started"), None, 0.0)
            return _watch(home, open_mill(home, job, owner, engine, info, pause, plans), view, stops)
        except NightmillError as error:
            pause_for(home.store, job.id, error.sentence)
            raise
        finally:
            view.close()
            plans.close()
            engine.stop()


def _set_running(home: Home, job: Job) -> Job:
    return home.store.set_state(job.id, expect=frozenset({JobState.PAUSED}), to=JobState.RUNNING)


def _start(engine: EngineProcess, view: View, stops: Stops, meanwhile: Callable[[], None]) -> EngineInfo | None:
    if engine.spec.backend == "fake":
        click.secho(FAKE, err=True, fg="red", bold=True)
    view.note(f"Starting the engine of {engine.spec.model} (log: {engine.spec.log_path}) …")
    began = time.monotonic()
    engine.launch()
    while (info := engine.ready(LOOK_S)) is None:
        if stops.asked.is_set():
            return None
        meanwhile()
    view.note(
        f"{info.engine} {info.version} is ready after {time.monotonic() - began:.0f} s "
        f"(context {info.max_model_len:,} tokens, {info.max_num_seqs} rows at once)"
    )
    return info


def _watch(home: Home, mill: Mill, view: View, stops: Stops) -> Exit:
    began = time.monotonic()
    mill.start()
    shown = show(home, {"role": "run"}, [mill.figures, database_figures(home)], lasting=False)
    drained = False
    try:
        while not mill.rest(LOOK_S):
            view.update(mill.snapshot())
            if stops.asked.is_set() and not drained:
                drained = True
                view.note(STOPPING)
                mill.drain("interrupted")
    finally:
        seconds = time.monotonic() - began
        snapshot = mill.snapshot()
        if drained:
            pause_for(home.store, mill.job_id, "stopped by a signal")
        job = mill.close()
        shown.close()
    return _end(view, job, snapshot, seconds)


def _end(view: View, job: Job, snapshot: Snapshot | None, seconds: float) -> Exit:
    view.close()
    code = exit_of(job)
    view.end(job, snapshot, seconds, code)
    return code


def exit_of(job: Job) -> Exit:
    """The exit code that says how a job stands."""
    if job.state is JobState.COMPLETED:
        return Exit.SOME_ERRORS if job.usage.outcomes.get(Outcome.ERROR, 0) else Exit.OK
    if job.state.terminal or job.state.ending:
        return Exit.NOT_COMPLETED
    return Exit.PAUSED
