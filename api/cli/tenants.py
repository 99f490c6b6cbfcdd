"""`nightmill tenants`: who pays, how much each may, and who is shut out."""

from __future__ import annotations

from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.limits import given, limit_options, said
from api.cli.output import print_json, table, when
from jobs.errors import BadInput, Conflict, NotFound
from jobs.tenancy import LIMITS, TENANT, Tenant


@click.group()
def tenants() -> None:
    """Add, list, limit and disable tenants. The tenant `default` is always there."""


@tenants.command()
@click.argument("name")
@click.option("--title", default="", help="What people call it.")
@click.option(
    "--enqueued-tokens", type=click.IntRange(min=0), help="Limit of its batches that wait or run. Default: none."
)
@limit_options
@json_option
@pass_app
def add(
    app: AppContext, /, *, name: str, title: str, enqueued_tokens: int | None, as_json: bool, **options: int | None
) -> None:
    """Add a tenant."""
    if not TENANT.fullmatch(name):
        raise BadInput(source=name, reason="it is no tenant's name: up to 63 of a-z, A-Z, 0-9, '.', '_', '-'")
    if _known(app, name):
        raise Conflict(reason=f"there is a tenant {name}")
    tenant = Tenant(name=name, title=title, enqueued_tokens_limit=enqueued_tokens).evolve(**given(options))
    _show(app, app.home.store.put_tenant(tenant, app.actor), "added", as_json=as_json)


@tenants.command("list")
@json_option
@pass_app
def list_tenants(app: AppContext, *, as_json: bool) -> None:
    """All tenants, with what their batches hold of their limit now."""
    found = [_facts(app, tenant) for tenant in app.home.store.tenants()]
    if as_json:
        print_json(found)
        return
    table(
        (
            "NAME",
            "TITLE",
            "ENQUEUED TOKENS>",
            "LIMIT>",
            "REQUESTS/MIN>",
            "TOKENS/MIN>",
            "AT A TIME>",
            "SINCE",
            "DISABLED",
        ),
        [
            (
                f["name"],
                f["title"],
                f["enqueued_tokens"],
                f["enqueued_tokens_limit"],
                *(f[field] for field in LIMITS),
                when(f["created_at"]),
                when(f["disabled_at"]),
            )
            for f in found
        ],
    )


@tenants.command()
@click.argument("name")
@click.argument("tokens", metavar="[TOKENS|none]", required=False)
@limit_options
@json_option
@pass_app
def limit(app: AppContext, /, *, name: str, tokens: str | None, as_json: bool, **options: int | None) -> None:
    """Say how much a tenant may: TOKENS of its batches that wait or run, and its interactive requests.

    What is not named stays; none is no limit. What is enqueued already stays, also past a new limit.
    """
    if tokens is not None and tokens != "none" and not tokens.isdecimal():
        msg = f"{tokens!r} is no number of tokens: write 5000000, or none."
        raise click.UsageError(msg)
    enqueued = {} if tokens is None else {"enqueued_tokens_limit": None if tokens == "none" else int(tokens)}
    changes = enqueued | given(options)
    if not changes:
        msg = "Say which limit: TOKENS, or an option."
        raise click.UsageError(msg)
    changed = app.home.store.tenant(name).evolve(**changes)
    what = "not limited" if set(changes.values()) == {None} else "limited"
    _show(app, app.home.store.put_tenant(changed, app.actor), what, as_json=as_json)


@tenants.command()
@click.argument("name")
@json_option
@pass_app
def disable(app: AppContext, *, name: str, as_json: bool) -> None:
    """Let a tenant's keys open nothing any more. Its jobs go on; its data stay."""
    changed = app.home.store.tenant(name).evolve(disabled_at=0.0)
    _show(app, app.home.store.put_tenant(changed, app.actor), "disabled", as_json=as_json)


@tenants.command()
@click.argument("name")
@json_option
@pass_app
def enable(app: AppContext, *, name: str, as_json: bool) -> None:
    """Let a disabled tenant's keys open again."""
    changed = app.home.store.tenant(name).evolve(disabled_at=None)
    _show(app, app.home.store.put_tenant(changed, app.actor), "enabled", as_json=as_json)


def _known(app: AppContext, name: str) -> bool:
    try:
        app.home.store.tenant(name)
    except NotFound:
        return False
    return True


def _facts(app: AppContext, tenant: Tenant) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "title": tenant.title,
        "enqueued_tokens": app.home.store.enqueued_tokens(tenant.name),
        "enqueued_tokens_limit": tenant.enqueued_tokens_limit,
        **{field: getattr(tenant, field) for field in LIMITS},
        "created_at": tenant.created_at,
        "disabled_at": tenant.disabled_at,
    }


def _show(app: AppContext, tenant: Tenant, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(_facts(app, tenant))
    else:
        most = "any number of" if tenant.enqueued_tokens_limit is None else f"at most {tenant.enqueued_tokens_limit:,}"
        limits = said(tenant)
        click.echo(f"Tenant {tenant.name} is {what}; it may have {most} tokens enqueued{limits and ', ' + limits}.")
