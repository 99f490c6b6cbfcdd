"""`nightmill sweep`: files of leases that can never commit them, and files that nobody can ask for any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.output import print_json, table, when
from api.cli.request import Duration
from jobs.errors import Unavailable
from jobs.sweeping import Dead

if TYPE_CHECKING:
    from infra.data.filesweeping import FileSweeper
    from infra.data.sweeping import Skipped, Sweeper


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
    """Delete what is of no use any more: parts of dead leases, deleted and expired files, uploads that never ended.

    A part below `_parts/` of a result folder goes only when the database says that its lease is over and that it is not
    among the job's results, and has said so for the given time. Files that a process left unfinished go once their job
    has ended. A file that was deleted or has expired goes when it has been so for the given time and no job or batch
    reads it. Answers to idempotency keys are forgotten after the setting `idempotency_keep_s`.
    """
    from workers.main import tidy

    tidy(app.home)
    swept: list[Dead] = []
    skipped: list[Skipped] = []
    for sweeper in _sweepers(app, older_than_s):
        for found in sweeper.find():
            if not dry_run:
                sweeper.delete(found)
            swept += found
        skipped += sweeper.skipped
    answers = 0 if dry_run else app.home.store.forget_replays(app.settings.idempotency_keep_s)
    if as_json:
        size = sum(file.size for file in swept)
        told = [{"job": one.job, "reason": one.error.sentence} for one in skipped]
        print_json({"dry_run": dry_run, "files": swept, "bytes": size, "answers": answers, "skipped": told})
    else:
        _show(swept, skipped, dry_run=dry_run)
    away = any(isinstance(one.error, Unavailable) for one in skipped)
    return Exit.UNAVAILABLE if away else Exit.OK


def _sweepers(app: AppContext, older_than_s: float) -> tuple[Sweeper, FileSweeper]:
    from infra.data.sweeping import Sweeper
    from workers.wiring import file_sweeper_of

    home = app.home
    files = file_sweeper_of(home, older_than_s)
    return Sweeper(store=home.store, objects=home.objects, older_than_s=older_than_s), files


def _show(swept: list[Dead], skipped: list[Skipped], *, dry_run: bool) -> None:
    if swept:
        table(["FILE", "BYTES>", "USELESS SINCE", "WHY"], [[f.uri, f.size, when(f.since), f.why] for f in swept])
    size = sum(file.size for file in swept)
    click.echo(f"{len(swept):,} files of {size:,} bytes {'would be deleted' if dry_run else 'deleted'}.")
    for one in skipped:
        click.echo(f"Not looked at: {one.job}: {one.error.sentence}", err=True)
