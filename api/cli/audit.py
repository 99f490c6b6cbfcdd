"""`nightmill audit`: who did what to whom may do what."""

from __future__ import annotations

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table, when


@click.command()
@click.option("--tenant", help="Only what concerns this tenant.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="So many at most.")
@json_option
@pass_app
def audit(app: AppContext, *, tenant: str | None, limit: int, as_json: bool) -> None:
    """Who changed tenants, keys, grants, aliases and prices; the newest first."""
    found = app.home.store.audit(tenant=tenant, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [(when(e.at), e.actor, e.action, e.tenant, e.subject, e.detail) for e in found]
    table(("AT", "WHO", "WHAT", "TENANT", "ON", "DETAIL"), rows)
