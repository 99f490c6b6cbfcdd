"""`nightmill run`, `quote`, `resume` and `retry`: the commands that bring rows to an engine."""

from __future__ import annotations

from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.request import engine_args, job_options, key_values, request_of, sampling_of, sampling_options
from api.cli.submitting import in_cluster, resume_in_cluster, tell_cluster_job
from jobs.errors import WrongState
from jobs.model import Job, JobState

_QUIET = click.option("--quiet", is_flag=True, help="No progress; the job's id goes to stdout.")


@click.command()
@job_options
@click.option("--dry-run", is_flag=True, help="Only a quote: what it would cost and take, without an engine.")
@_QUIET
@json_option
@pass_app
def run(app: AppContext, /, *, dry_run: bool, quiet: bool, as_json: bool, **options: Any) -> int:
    """Generate an output for every row of INPUT, here and now.

    INPUT is a Parquet file, a folder or a glob of them, or JSONL in OpenAI's batch form; a path or an s3:// URI. The
    job's id is the last line on stdout; the results lie in OUTPUT/JOB/ when it ends. Ctrl-C stops after committing what
    is finished, and `nightmill resume` goes on.
    """
    if dry_run:
        return _quote(app, options, as_json=as_json)
    from api.cli.driving import Stops, drive, engine_for, pause_rule
    from api.cli.view import tell_job, view_for
    from jobs.submit import check, made_before, submit

    home = app.home
    request = request_of(options, tenant=home.settings.tenant)
    if (made := made_before(request, home.store)) is not None:
        return _take_up(app, made, dict(request.engine_args), quiet=quiet, as_json=as_json)
    engine = engine_for(home, home.registry.resolve(request.model), dict(request.engine_args))
    view = view_for(quiet=quiet, as_json=as_json)
    try:
        home.example_prices(request.model)
        engine.launch()  # it starts while the input is looked at
        checked = check(request, intake=home.intake, models=home.registry, store=home.store)
        if checked.examined.spec.schema is not None:
            view.note("Asking the engine whether it can follow the schema …")
            engine.check_schema(checked.examined.spec.schema)
        stops = Stops(engine)
        with stops.listening():  # between its record and the word of it nothing may end this process
            job = submit(checked, intake=home.intake, store=home.store, ids=home.ids)
            stops.job_id = job.id
            view.note(f"Job {job.id}: {job.total_rows:,} rows of {options['input_']}")
            tell_job(job, as_json=as_json)
            return drive(home, job, engine, view, pause=pause_rule(home, job, resumed=False), stops=stops)
    finally:
        view.close()
        engine.stop()


def _take_up(app: AppContext, job: Job, engine_args: dict[str, Any], *, quiet: bool, as_json: bool) -> int:
    """Go on with what an earlier run with the same idempotency key began, or tell how it ended."""
    from api.cli.driving import drive, engine_for, pause_rule
    from api.cli.view import tell_job, view_for

    home = app.home
    if in_cluster(job):
        tell_cluster_job(job, as_json=as_json)
        return Exit.OK
    if job.state.ending:
        return _go_on(app, job, engine_args, resumed=False, quiet=quiet, as_json=as_json)
    model = home.registry.resolve(job.spec.model)
    if not job.state.terminal:
        home.intake.check_unchanged(job, home.store.files(job.id), model)
    view = view_for(quiet=quiet, as_json=as_json)
    tell_job(job, as_json=as_json)
    engine = engine_for(home, model, engine_args)
    return drive(home, job, engine, view, pause=pause_rule(home, job, resumed=False))


@click.command()
@job_options
@json_option
@pass_app
def quote(app: AppContext, /, *, as_json: bool, **options: Any) -> int:
    """What a run would cost and how long it would take, without starting an engine.

    Takes the options of `nightmill run`. Tokens come from a sample of rows; output is counted at its limit.
    """
    return _quote(app, options, as_json=as_json)


def _quote(app: AppContext, options: dict[str, Any], *, as_json: bool) -> int:
    from api.cli.quoting import show_quote

    return show_quote(app.home, request_of(options, tenant=app.settings.tenant), as_json=as_json)


@click.command()
@click.argument("job_text", metavar="JOB")
@click.option("--engine-arg", multiple=True, callback=key_values("NAME=VALUE"), help="As in run, for this process.")
@_QUIET
@json_option
@pass_app
def resume(app: AppContext, *, job_text: str, engine_arg: dict[str, str], quiet: bool, as_json: bool) -> int:
    """Go on with a job that was paused, stopped, or whose process died.

    Only what had not been committed is done again. JOB is an id, its beginning or end, or `last`. A job of a cluster
    goes on there, and this command returns at once.
    """
    from workers.main import seal_if_missing, tidy

    home = app.home
    job = home.store.find_job(job_text)
    if seal_if_missing(home, job):  # a process that died between the job's end and `_SUCCESS` left only that to do
        return _tell_end(job, f"it was {job.state} already, and only its _SUCCESS was missing", as_json=as_json)
    tidy(home)
    job = home.store.job(job.id)
    if job.state.terminal:
        raise WrongState(job=job.id, state=job.state, action="resume", needed="running or paused")
    if in_cluster(job):
        tell_cluster_job(resume_in_cluster(app, job), as_json=as_json)
        return Exit.OK
    return _go_on(app, job, engine_args(engine_arg), resumed=True, quiet=quiet, as_json=as_json)


@click.command()
@click.argument("job_text", metavar="JOB")
@click.option("--outcome", "outcomes", default="error,truncated", show_default=True, help="Which rows, by commas.")
@click.option("--output", help="Folder of the new job. Default: the parent's.")
@sampling_options
@click.option("--engine-arg", multiple=True, callback=key_values("NAME=VALUE"), help="As in run.")
@_QUIET
@json_option
@pass_app
def retry(
    app: AppContext,
    /,
    *,
    job_text: str,
    outcomes: str,
    output: str | None,
    engine_arg: dict[str, str],
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run the rows of a finished job that had these outcomes again, as a child job.

    The child keeps the parent's prompt and row numbers; sampling parameters given here replace the parent's.
    `nightmill results JOB --latest` reads both as one.
    """
    from api.cli.retrying import make_retry

    job = make_retry(app.home, app.home.store.find_job(job_text), outcomes, output, sampling_of(options))
    if in_cluster(job):
        tell_cluster_job(job, as_json=as_json)
        return Exit.OK
    return _go_on(app, job, engine_args(engine_arg), resumed=False, quiet=quiet, as_json=as_json)


def _go_on(app: AppContext, job: Job, extra_args: dict[str, Any], *, resumed: bool, quiet: bool, as_json: bool) -> int:
    from api.cli.driving import drive, engine_for, pause_rule
    from api.cli.view import tell_job, view_for
    from workers.main import end_without_engine

    home = app.home
    if job.state.ending:
        job = end_without_engine(home, job)
        return _tell_end(job, f"it is {job.state}", as_json=as_json)
    model = home.registry.resolve(job.spec.model)
    home.intake.check_unchanged(job, home.store.files(job.id), model)
    rule = pause_rule(home, job, resumed=resumed and job.state is JobState.PAUSED)
    view = view_for(quiet=quiet, as_json=as_json)
    view.note(f"Job {job.id}: {job.usage.rows:,} of {job.total_rows:,} rows are committed")
    tell_job(job, as_json=as_json)
    engine = engine_for(home, model, {**job.spec.engine_args, **extra_args})
    return drive(home, job, engine, view, pause=rule)


def _tell_end(job: Job, text: str, *, as_json: bool) -> int:
    from api.cli.driving import exit_of
    from api.cli.view import emit, job_facts

    if as_json:
        emit({"event": "end", **job_facts(job)})
    else:
        click.echo(f"{job.id}: {text}; results: {job.folder}")
    return exit_of(job)
