"""`nightmill results`: rows of a job, to look at or to pass on."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table

_SHOWN = ("row", "custom_id", "outcome", "output", "error_message", "output_tokens")
_CELL = 96
_HEAD = 10


@click.command()
@click.argument("job_text", metavar="JOB")
@click.option(
    "--head",
    type=click.IntRange(min=1),
    is_flag=False,
    flag_value=_HEAD,
    help=f"Show the first N rows that are committed; {_HEAD} without a number.",
)
@click.option("--outcome", "outcomes", help="Only rows with these outcomes, by commas.")
@click.option("--jsonl", is_flag=True, help="Stream all rows as OpenAI batch output and error lines.")
@click.option(
    "--latest", is_flag=True, help="Read the job and its retries as one: a retried row counts, not its first try."
)
@json_option
@pass_app
def results(
    app: AppContext, *, job_text: str, head: int | None, outcomes: str | None, jsonl: bool, latest: bool, as_json: bool
) -> None:
    """Show results. Works while the job runs: only committed rows are shown.

    Without --jsonl, a table of the first rows (10 unless --head says otherwise) and where the Parquet files lie.
    """
    from api.cli.retrying import outcomes_of

    home = app.home
    job = home.store.find_job(job_text)
    wanted = [str(outcome) for outcome in outcomes_of(outcomes)] if outcomes else None
    family = _family(app, job.id) if latest else []
    if jsonl:
        for line in home.results.jsonl(job, family=family, outcomes=wanted):
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    rows = list(home.results.rows(job, family=family, outcomes=wanted, limit=head or _HEAD))
    if as_json:
        print_json(rows)
        return
    _table(rows)
    where = job.folder if job.state.terminal else f"{job.folder} (published when the job ends)"
    click.echo(f"\nParquet: {where}")


def _family(app: AppContext, job_id: str) -> list[Any]:
    """Retries, retries of retries, …, oldest first."""
    out: list[Any] = []
    todo = [job_id]
    while todo:
        for child in app.home.store.children(todo.pop(0)):
            out.append(child)
            todo.append(child.id)
    return out


def _table(rows: Sequence[Mapping[str, Any]]) -> None:
    shown = [name for name in _SHOWN if any(row.get(name) is not None for row in rows)]
    table([name.upper() for name in shown], [[_short(row.get(name)) for name in shown] for row in rows])


def _short(value: object) -> object:
    if isinstance(value, list):
        return f"[{', '.join(f'{x:.4f}' for x in value[:3])}, … {len(value)} numbers]"
    text = value if not isinstance(value, str) else " ".join(value.split())
    return f"{text[:_CELL]}…" if isinstance(text, str) and len(text) > _CELL else text
