"""`nightmill sweep`: files of leases that can never commit them."""

from __future__ import annotations

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.output import print_json, table, when
from api.cli.request import Duration
from jobs.errors import Unavailable
from jobs.sweeping import Dead


@click.command()
@click.option(
    "--older-than",
    "older_than_s",
    type=Duration(),
    default="1h",
    show_default=True,
    help="Only what has been useless for so long: 90s, 30m, 8h, 2d.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@json_option
@pass_app
def sweep(app: AppContext, *, older_than_s: float, dry_run: bool, as_json: bool) -> Exit:
    """Delete what dead leases left under `_parts/` in the result folders of all jobs.

    A part goes only when the database says that its lease is over and that it is not among the job's results, and has
    said so for the given time. Files that a process left unfinished go once their job has ended.
    """
    from infra.data.sweeping import Sweeper
    from workers.main import tidy

    tidy(app.home)
    sweeper = Sweeper(store=app.home.store, objects=app.home.objects, older_than_s=older_than_s)
    swept: list[Dead] = []
    for found in sweeper.find():
        if not dry_run:
            sweeper.delete(found)
        swept += found
    size = sum(file.size for file in swept)
    if as_json:
        skipped = [{"job": one.job, "reason": one.error.sentence} for one in sweeper.skipped]
        print_json({"dry_run": dry_run, "files": swept, "bytes": size, "skipped": skipped})
    else:
        if swept:
            table(["FILE", "BYTES>", "USELESS SINCE", "WHY"], [[f.uri, f.size, when(f.since), f.why] for f in swept])
        verb = "would be deleted" if dry_run else "deleted"
        click.echo(f"{len(swept):,} files of {size:,} bytes {verb}.")
        for one in sweeper.skipped:
            click.echo(f"Not looked at: {one.job}: {one.error.sentence}", err=True)
    away = any(isinstance(one.error, Unavailable) for one in sweeper.skipped)
    return Exit.UNAVAILABLE if away else Exit.OK
