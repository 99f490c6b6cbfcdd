"""`nightmill submit`, `watch`, `priority`: jobs of a cluster."""

from __future__ import annotations

import time
from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.request import job_options, request_of
from jobs.errors import BadInput, BadSchema, NightmillError, WrongState
from jobs.model import Job, JobState, Priority, Usage
from jobs.pools import Pool, is_private

_LOOK_S = 0.5


@click.command()
@job_options
@click.option("--pool", "pool_name", help="A declared pool. Default: the first that serves the model.")
@json_option
@pass_app
def submit(app: AppContext, /, *, pool_name: str | None, as_json: bool, **options: Any) -> None:
    """Hand a job to `nightmill up` and return at once; the job's id goes to stdout.

    The model says which pool runs it. The job waits in the database until Nightmill is up; `nightmill watch` shows
    how it goes on.
    """
    from jobs.submit import submit_to_pool

    if options["engine_arg"]:
        raise BadInput(source="--engine-arg", reason="in a cluster the pool's settings say how its engines run")
    home = app.home
    home.example_prices(options["model"])
    job = submit_to_pool(
        request_of({**options, "pool_name": pool_name}, tenant=app.settings.tenant),
        pools=home.pools,
        intake=home.intake,
        models=home.registry,
        store=home.store,
        ids=home.ids,
        can_follow=lambda pool, schema: _ask_engine(app, pool, schema),
    )
    if home.registry.resolve(job.spec.model).engine == "fake":
        from api.cli.driving import FAKE

        click.secho(FAKE, err=True, fg="red", bold=True)
    tell_cluster_job(job, as_json=as_json)


def _ask_engine(app: AppContext, pool: Pool, schema: str) -> None:
    """`jobs.submit.SchemaCheck`, where Nightmill is up on a cluster; elsewhere the engine tells at its first row."""
    import structlog

    from api.cli.cluster import attached

    try:
        with attached(app):
            from workers.actors.common import can_follow

            can_follow(pool, schema)
    except BadSchema:
        raise
    except NightmillError as error:
        structlog.get_logger().info("schema_unasked", pool=pool.name, reason=error.sentence)


def tell_cluster_job(job: Job, *, as_json: bool) -> None:
    """Its id on stdout; or its record."""
    from api.cli.output import print_json
    from api.cli.view import job_facts

    if as_json:
        print_json({**job_facts(job), "pool": job.pool, "priority": str(job.priority)})
    else:
        click.echo(job.id)


@click.command()
@click.argument("job_text", metavar="JOB")
@click.option("--quiet", is_flag=True, help="Only wait; the exit code says how the job stands.")
@json_option
@pass_app
def watch(app: AppContext, *, job_text: str, quiet: bool, as_json: bool) -> Exit:
    """Show a job's progress until it ends or pauses. Ctrl-C ends the view only."""
    from api.cli.driving import exit_of
    from api.cli.view import view_for
    from workers.meter import Meter
    from workers.mill import Snapshot

    store = app.home.store
    job = first = store.find_job(job_text)
    began, meter = time.monotonic(), Meter()
    view = view_for(quiet=quiet, as_json=as_json)
    snapshot = Snapshot(job=job, rows_before=first.usage.rows)
    try:
        while not (job.state.terminal or job.state is JobState.PAUSED):
            job = store.job(job.id)
            rate = meter.note(time.monotonic(), job.usage.rows, job.usage.output_tokens)
            left = job.total_rows - job.usage.rows
            snapshot = Snapshot(
                job=job,
                rows_before=first.usage.rows,
                generated_rows=job.usage.rows - first.usage.rows,
                generated=_since(first.usage, job.usage),
                rows_per_s=rate[0],
                output_tokens_per_s=rate[1],
                eta_s=left / rate[0] if rate[0] > 0 else None,
            )
            view.update(snapshot)
            time.sleep(_LOOK_S)
    finally:
        view.close()
    code = exit_of(job)
    view.end(job, snapshot, time.monotonic() - began, code)
    return code


def _since(before: Usage, now: Usage) -> Usage:
    return Usage(
        rows=now.rows - before.rows,
        input_tokens=now.input_tokens - before.input_tokens,
        cached_tokens=now.cached_tokens - before.cached_tokens,
        output_tokens=now.output_tokens - before.output_tokens,
    )


@click.command()
@click.argument("job_text", metavar="JOB")
@click.argument("level", type=click.Choice([str(p) for p in Priority]))
@json_option
@pass_app
def priority(app: AppContext, *, job_text: str, level: str, as_json: bool) -> None:
    """Change a job's priority. What was released with the old one is taken back and released anew."""
    store = app.home.store
    job = store.set_priority(store.find_job(job_text).id, Priority(level))
    if as_json:
        tell_cluster_job(job, as_json=True)
    else:
        click.echo(f"{job.id}: {level}")


def in_cluster(job: Job) -> bool:
    """Whether a cluster looks after it, and no process of its own."""
    return not is_private(job.pool)


def resume_in_cluster(app: AppContext, job: Job) -> Job:
    """Let a paused job of a cluster go on: its pool's scheduler sees it at the next tick."""
    from jobs.ending import RESUMED

    if job.state is not JobState.PAUSED:
        raise WrongState(job=job.id, state=job.state, action="resume", needed="paused")
    app.home.intake.check_unchanged(job, app.home.store.files(job.id), app.home.registry.resolve(job.spec.model))
    expect = frozenset({JobState.PAUSED})
    return app.home.store.set_state(job.id, expect=expect, to=JobState.RUNNING, reason=f"{RESUMED} by nightmill resume")
