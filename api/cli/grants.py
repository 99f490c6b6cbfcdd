"""`nightmill grants`: which storage tenants may touch over the API."""

from __future__ import annotations

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table, when
from jobs.errors import NotFound
from jobs.tenancy import Grant, grant_prefix


@click.group()
def grants() -> None:
    """Let tenants read and write storage over the API, and take it back.

    Without a grant a tenant reads and writes nothing but its own files. The platform's own credentials are used below a
    granted prefix and nowhere else. The local command line is the operator's own and needs no grant.
    """


@grants.command("add")
@click.argument("tenant")
@click.argument("prefix")
@click.option("--write", is_flag=True, help="It may write there too.")
@json_option
@pass_app
def add(app: AppContext, *, tenant: str, prefix: str, write: bool, as_json: bool) -> None:
    """Let a tenant read, or with --write read and write, everything below PREFIX: s3://BUCKET/FOLDER/.

    Given again it changes whether it may write.
    """
    grant = Grant(tenant=tenant, prefix=grant_prefix(prefix), write=write)
    app.home.store.put_grant(grant, app.actor)
    if as_json:
        print_json(next(kept for kept in app.home.store.grants(tenant) if kept.prefix == grant.prefix))
    else:
        click.echo(f"Tenant {tenant} may read{' and write' if write else ''} below {grant.prefix}")


@grants.command("list")
@click.argument("tenant", required=False)
@json_option
@pass_app
def list_grants(app: AppContext, *, tenant: str | None, as_json: bool) -> None:
    """What a tenant may read and write, or all tenants."""
    store = app.home.store
    names = [store.tenant(tenant).name] if tenant else [known.name for known in store.tenants()]
    found = [grant for name in names for grant in store.grants(name)]
    if as_json:
        print_json(found)
        return
    rows = [(g.tenant, g.prefix, "read and write" if g.write else "read", when(g.created_at)) for g in found]
    table(("TENANT", "PREFIX", "MAY", "SINCE"), rows)


@grants.command("remove")
@click.argument("tenant")
@click.argument("prefix")
@json_option
@pass_app
def remove(app: AppContext, *, tenant: str, prefix: str, as_json: bool) -> None:
    """Take a grant back. Jobs that were submitted go on."""
    if not app.home.store.remove_grant(tenant, grant_prefix(prefix), app.actor):
        raise NotFound(kind="grant", name=f"{tenant} {prefix}", hint=f"See: nightmill grants list {tenant}")
    if as_json:
        print_json({"tenant": tenant, "removed": grant_prefix(prefix)})
    else:
        click.echo(f"Tenant {tenant} may no longer touch what is below {grant_prefix(prefix)}")
