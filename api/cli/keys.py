"""`nightmill keys`: API keys. A key is shown once, when it is made; nothing kept of it opens anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table, when
from api.cli.request import Duration
from jobs.tenancy import MEMBER_SCOPES, ApiKey, Role, Scope


@click.group()
def keys() -> None:
    """Make, list, rotate and revoke API keys."""


@keys.command()
@click.option("--tenant", help="Whose key. Default: the setting `tenant`.")
@click.option("--name", default="", help="What it is for.")
@click.option("--project", default="", help="Written into every posting of what it submits.")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in Role]),
    default="member",
    show_default=True,
    help="What its holder is.",
)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([str(scope) for scope in Scope]),
    multiple=True,
    help="What it may be used for; repeatable. Default: all that its role may.",
)
@click.option(
    "--expires", "expires_s", type=Duration(), help="Good for so long: 8h, 90d. Default: until it is revoked."
)
@json_option
@pass_app
def create(
    app: AppContext,
    *,
    tenant: str | None,
    name: str,
    project: str,
    role: str,
    scopes: Sequence[str],
    expires_s: float | None,
    as_json: bool,
) -> None:
    """Make a key and show it, this once."""
    from infra.api_keys import new_key

    now = app.home.store.now()
    text, key = new_key(app.home.ids, tenant=tenant or app.settings.tenant)
    key = key.evolve(
        name=name,
        project=project,
        role=Role(role),
        scopes=_scopes(Role(role), scopes),
        created_at=now,
        expires_at=None if expires_s is None else now + expires_s,
    )
    _show_once(app, text, app.home.store.add_key(key, app.actor), as_json=as_json)


def first_key(app: AppContext) -> str | None:
    """An operator's key where there is none at all: nobody could use the API. None where there is one."""
    from infra.api_keys import new_key

    store = app.home.store
    if store.keys():
        return None
    text, key = new_key(app.home.ids, tenant=app.settings.tenant)
    rights = {"name": "first", "role": Role.OPERATOR, "scopes": frozenset(Scope), "created_at": store.now()}
    store.add_key(key.evolve(**rights), app.actor)
    return text


def _scopes(role: Role, names: Sequence[str]) -> frozenset[Scope]:
    asked = frozenset(Scope(name) for name in names)
    if role is Role.MEMBER and Scope.KEYS in asked:
        msg = "The scope keys needs --role admin or operator."
        raise click.UsageError(msg)
    return asked or (MEMBER_SCOPES if role is Role.MEMBER else frozenset(Scope))


@keys.command("list")
@click.option("--tenant", help="Only this tenant's.")
@json_option
@pass_app
def list_keys(app: AppContext, *, tenant: str | None, as_json: bool) -> None:
    """All keys, the newest first."""
    now = app.home.store.now()
    found = app.home.store.keys(tenant)
    if as_json:
        print_json([_facts(key) for key in found])
        return
    table(
        ("ID", "TENANT", "KEY", "NAME", "ROLE", "MADE", "STATE"),
        [(k.id, k.tenant, f"{k.shown}…", k.name, k.role, when(k.created_at), _state(k, now)) for k in found],
    )


@keys.command()
@click.argument("key_id", metavar="KEY_ID")
@json_option
@pass_app
def revoke(app: AppContext, *, key_id: str, as_json: bool) -> None:
    """Let a key open nothing from now on."""
    ended = app.home.store.end_key(key_id, tenant=None, at=None, actor=app.actor)
    if as_json:
        print_json(_facts(ended))
    else:
        click.echo(f"Key {ended.id} ({ended.shown}…) of {ended.tenant} is revoked.")


@keys.command()
@click.argument("key_id", metavar="KEY_ID")
@click.option(
    "--overlap", "overlap_s", type=Duration(), default="24h", show_default=True, help="How long the old one stays good."
)
@json_option
@pass_app
def rotate(app: AppContext, *, key_id: str, overlap_s: float, as_json: bool) -> None:
    """Make a key in place of another, and show it, this once. It may do the same, for as long as that was made for."""
    from infra.api_keys import successor

    store = app.home.store
    text, key = successor(app.home.ids, store.key(key_id), now=store.now())
    made = store.replace_key(key, overlap_s=overlap_s, actor=app.actor)
    _show_once(app, text, made, as_json=as_json)
    if not as_json:
        click.echo(f"Key {key_id} ends at {when(store.key(key_id).revoked_at)}.")


def _show_once(app: AppContext, text: str, key: ApiKey, *, as_json: bool) -> None:
    if as_json:
        print_json({"key": text, **_facts(key)})
    else:
        state = _state(key, app.home.store.now())
        click.echo(f"Key {key.id} of tenant {key.tenant}, role {key.role}, {state}:\n\n    {text}\n")
        click.echo("It is not shown again: keep it where secrets are kept.")


def _facts(key: ApiKey) -> dict[str, Any]:
    """Without its digest, which is nobody's business."""
    fields = ("id", "tenant", "shown", "name", "project", "role", "created_at", "expires_at", "revoked_at", "replaces")
    return {name: getattr(key, name) for name in fields} | {"scopes": sorted(key.scopes)}


def _state(key: ApiKey, now: float) -> str:
    if key.revoked_at is not None and key.revoked_at <= now:
        return f"revoked {when(key.revoked_at)}"
    if not key.opens(now):
        return f"expired {when(key.expires_at)}"
    ends = [at for at in (key.expires_at, key.revoked_at) if at is not None]
    return f"good until {when(min(ends))}" if ends else "good"
