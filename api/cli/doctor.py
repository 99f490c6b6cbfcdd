"""`nightmill doctor`: what is there and what is not."""

from __future__ import annotations

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.output import print_json

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@json_option
@pass_app
def doctor(app: AppContext, as_json: bool) -> Exit:
    """Say what is there and what is not, with the mend.

    Looks at Python, the engine, the machine, the data directory, the database, the book and the models, and changes
    nothing. Exit code 7 when something fails; warnings do not count.
    """
    from infra.doctor import Level, examine

    failed = False
    found = []
    for check in examine(app.settings):
        failed = failed or check.level is Level.FAIL
        found.append(check)
        if not as_json:
            click.echo(f"{click.style(f'{check.level:4}', fg=_COLOURS[check.level])}  {check.name}: {check.found}")
            if check.mend:
                click.echo(f"      → {check.mend}")
    if as_json:
        print_json({"failed": failed, "checks": found})
    return Exit.UNAVAILABLE if failed else Exit.OK
