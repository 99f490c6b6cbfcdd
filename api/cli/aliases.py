"""`nightmill models alias`, `aliases` and `unalias`: other names of models."""

from __future__ import annotations

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table
from jobs.errors import BadInput, NotFound
from jobs.tenancy import MODEL_NAME, Alias

_FOR = click.option("--tenant", default="", help="Only for this tenant. Default: for all.")


@click.command()
@click.argument("alias")
@click.argument("model")
@_FOR
@json_option
@pass_app
def alias(app: AppContext, *, alias: str, model: str, tenant: str, as_json: bool) -> None:
    """Let requests and lines that ask for ALIAS run on MODEL; answers echo the name that was asked.

    A model's own name means that model, whatever is an alias; a tenant's own alias goes before one that is for all.
    """
    if not MODEL_NAME.fullmatch(alias):
        raise BadInput(source=alias, reason="an alias is made of letters, digits and . _ - / : @ (at most 200)")
    app.home.registry.check_known(model)
    put = Alias(alias=alias, model=model, tenant=tenant)
    app.home.store.put_alias(put, app.actor)
    if as_json:
        print_json(put)
    else:
        click.echo(f"{alias} means {model} for {tenant or 'all tenants'}.")


@click.command()
@click.option("--tenant", help="Only those that this tenant sees.")
@json_option
@pass_app
def aliases(app: AppContext, *, tenant: str | None, as_json: bool) -> None:
    """List the other names of models."""
    found = app.home.store.aliases(tenant)
    if as_json:
        print_json(found)
    else:
        table(("ALIAS", "MODEL", "FOR"), [(a.alias, a.model, a.tenant or "all tenants") for a in found])


@click.command()
@click.argument("alias")
@_FOR
@json_option
@pass_app
def unalias(app: AppContext, *, alias: str, tenant: str, as_json: bool) -> None:
    """Forget an alias."""
    if not app.home.store.remove_alias(alias, tenant, app.actor):
        whose = f"{alias} for {tenant or 'all tenants'}"
        raise NotFound(kind="alias", name=whose, hint="See: nightmill models aliases")
    if as_json:
        print_json({"tenant": tenant, "removed": alias})
    else:
        click.echo(f"{alias} means nothing any more for {tenant or 'all tenants'}.")
