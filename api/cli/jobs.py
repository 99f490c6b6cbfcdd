"""`nightmill jobs`, `status`, `wait`, `pause`, `cancel`: looking at jobs, and steering them from another terminal."""

from __future__ import annotations

import time
from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.output import print_json, table, when
from api.cli.request import Duration
from api.cli.submitting import in_cluster
from jobs.errors import JobOwned, WrongState
from jobs.model import Job, JobState
from jobs.pricing import show

_RUNNING = frozenset({JobState.RUNNING})
_OPEN = frozenset({JobState.RUNNING, JobState.PAUSED})
_LOOK_S = 0.5


@click.command()
@click.option("--tenant", help="Only this tenant's.")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="How many, newest first.")
@json_option
@pass_app
def jobs(app: AppContext, *, tenant: str | None, last: int, as_json: bool) -> None:
    """List jobs, the newest first."""
    from api.cli.view import job_facts, outcome_text
    from workers.main import tidy

    tidy(app.home)
    found = app.home.store.jobs(tenant=tenant, limit=last)
    if as_json:
        print_json([job_facts(job) for job in found])
        return
    table(
        ("JOB", "STATE", "MODEL", "ROWS>", "OF>", "OUTCOMES", "COST>", "CREATED"),
        [
            (
                job.id,
                job.state,
                job.spec.model,
                job.usage.rows,
                job.total_rows,
                outcome_text(job.usage),
                show(job.amount_pico, job.price.currency),
                when(job.created_at),
            )
            for job in found
        ],
    )


@click.command()
@click.argument("job_text", metavar="JOB")
@json_option
@pass_app
def status(app: AppContext, *, job_text: str, as_json: bool) -> None:
    """Show how a job stands. JOB is an id, its beginning or end, or `last`."""
    from api.cli.view import job_facts
    from workers.main import tidy

    home = app.home
    tidy(home)
    home.store.fold()
    job = home.store.find_job(job_text)
    runner = home.locks.holder_of(job.id)
    facts = {
        **job_facts(job),
        "pool": job.pool if in_cluster(job) else None,
        "priority": str(job.priority),
        "process": runner,
        "tasks": {str(k): n for k, n in home.store.task_counts(job.id).items()},
    }
    if as_json:
        print_json(facts)
        return
    _print_status(job, facts)


def _print_status(job: Job, facts: dict[str, Any]) -> None:
    from rich.console import Console

    from api.cli.view import summary

    summary(Console(), job, None, 0.0)
    tasks = ", ".join(f"{n:,} {state}" for state, n in facts["tasks"].items() if n)
    click.echo(f"{'tasks':<13} {tasks or 'none planned yet'}")
    if job.state.terminal or job.state is JobState.PAUSED:
        return
    if facts["pool"] is not None:
        click.echo(f"{'pool':<13} {facts['pool']}, priority {facts['priority']}")
        return
    runner = facts["process"]
    text = f"{runner} runs it" if runner is not None else f"none; go on with: nightmill resume {job.id}"
    click.echo(f"{'process':<13} {text}")


@click.command()
@click.argument("job_text", metavar="JOB")
@click.option("--timeout", type=Duration(), help="Give up waiting after this long: 90s, 30m, 8h.")
@json_option
@pass_app
def wait(app: AppContext, *, job_text: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a job ends or pauses; the exit code says how. Exit 6 if the time-out passes first.

    A job that no process runs is not waited for: its state is told at once.
    """
    from api.cli.driving import exit_of
    from api.cli.view import job_facts, one_line
    from workers.mill import Snapshot

    store = app.home.store
    job = store.find_job(job_text)
    end = None if timeout is None else time.monotonic() + timeout
    while not (job.state.terminal or job.state is JobState.PAUSED):
        if not in_cluster(job) and app.home.locks.holder_of(job.id) is None:
            job = store.job(job.id)
            break
        if end is not None and time.monotonic() > end:
            click.echo(f"{job.id} is still {job.state}: {job.usage.rows:,} of {job.total_rows:,} rows", err=True)
            return Exit.TIMED_OUT
        time.sleep(_LOOK_S)
        job = store.job(job.id)
    if as_json:
        print_json(job_facts(job))
    else:
        click.echo(one_line(Snapshot(job=job)))
    return exit_of(job)


@click.command()
@click.argument("job_text", metavar="JOB")
@json_option
@pass_app
def pause(app: AppContext, *, job_text: str, as_json: bool) -> None:
    """Pause a running job: finished rows are committed, and `nightmill resume` goes on.

    A process that runs it ends; in a cluster its tasks leave the workers.
    """
    job = app.home.store.find_job(job_text)
    if job.state is JobState.PAUSED:
        _tell(job, "paused already", as_json=as_json)
        return
    if job.state not in _RUNNING:
        raise WrongState(job=job.id, state=job.state, action="pause", needed="running")
    job = app.home.store.set_state(job.id, expect=_RUNNING, to=JobState.PAUSED, reason="paused by nightmill pause")
    _tell(job, "pausing; finished rows are kept", as_json=as_json)


@click.command()
@click.argument("job_text", metavar="JOB")
@json_option
@pass_app
def cancel(app: AppContext, *, job_text: str, as_json: bool) -> None:
    """Cancel a job: finished rows stay, every other row becomes a `cancelled` row of the results."""
    from workers.main import end_without_engine, seal_if_missing, tidy

    home = app.home
    job = home.store.find_job(job_text)
    if seal_if_missing(home, job):
        _tell(job, f"{job.state} already; its _SUCCESS was missing and is written now", as_json=as_json)
        return
    tidy(home)
    job = home.store.job(job.id)
    if job.state is JobState.CANCELLED:
        _tell(job, "cancelled already", as_json=as_json)
        return
    if job.state is not JobState.CANCELLING:
        if job.state not in _OPEN:
            raise WrongState(job=job.id, state=job.state, action="cancel", needed="running or paused")
        job = home.store.set_state(job.id, expect=_OPEN, to=JobState.CANCELLING, reason="cancelled by nightmill cancel")
    if in_cluster(job):
        _tell(job, f"cancelling; pool {job.pool} ends it", as_json=as_json)
        return
    try:
        job = end_without_engine(home, job)
        _tell(job, f"{job.state}; results: {job.folder}", as_json=as_json)
    except JobOwned as taken:
        _tell(job, f"cancelling; process {taken.pid} ends it", as_json=as_json)


def _tell(job: Job, text: str, *, as_json: bool) -> None:
    from api.cli.view import job_facts

    if as_json:
        print_json(job_facts(job))
    else:
        click.echo(f"{job.id}: {text}")
