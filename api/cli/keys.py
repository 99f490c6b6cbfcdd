"""`nightmill keys`: API keys. A key is shown once, when it is made; nothing kept of it opens anything."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.limits import given, limit_options, said
from api.cli.output import print_json, table, when
from api.cli.request import Duration
from jobs.keys import KEY_BYTES, KeyDesk, KeyRequest, MadeKey
from jobs.tenancy import LIMITS, ApiKey, RequestLimits, Role, Scope


@click.group()
def keys() -> None:
    """Make, list, limit, rotate and revoke API keys."""


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
@limit_options
@json_option
@pass_app
def create(
    app: AppContext,
    /,
    *,
    tenant: str | None,
    name: str,
    project: str,
    role: str,
    scopes: Sequence[str],
    expires_s: float | None,
    as_json: bool,
    **options: int | None,
) -> None:
    """Make a key and show it, this once."""
    asked = KeyRequest(
        name=name,
        project=project,
        role=Role(role),
        scopes=frozenset(Scope(scope) for scope in scopes),
        expires_s=expires_s,
        limits=RequestLimits(**given(options)),
    )
    _show_once(app, _made(app, asked, tenant or app.settings.tenant), as_json=as_json)


def first_key(app: AppContext) -> str | None:
    """An operator's key where there is none at all: nobody could use the API. None where there is one."""
    if app.home.store.keys(limit=1):
        return None
    return _made(app, KeyRequest(name="first", role=Role.OPERATOR), app.settings.tenant).text


def _made(app: AppContext, asked: KeyRequest, tenant: str) -> MadeKey:
    return _desk(app).make(app.home.ids.new("key_"), secrets.token_bytes(KEY_BYTES), asked, tenant=tenant)


def _desk(app: AppContext) -> KeyDesk:
    return KeyDesk(store=app.home.store, now=app.home.store.now, actor=app.actor)


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
@limit_options
@json_option
@pass_app
def limit(app: AppContext, /, *, key_id: str, as_json: bool, **options: int | None) -> None:
    """Say how much a key may; what is not named stays, none is no limit. Its tenant's limits hold beside it."""
    if not (changes := given(options)):
        msg = "Say which limit, by an option."
        raise click.UsageError(msg)
    limits = RequestLimits.of(app.home.store.key(key_id)).evolve(**changes)
    key = app.home.store.limit_key(key_id, limits, tenant=None, actor=app.actor)
    if as_json:
        print_json(_facts(key))
    else:
        click.echo(f"Key {key.id} ({key.shown}…) of {key.tenant} may have {said(key) or 'any number of requests'}.")


@keys.command()
@click.argument("key_id", metavar="KEY_ID")
@json_option
@pass_app
def revoke(app: AppContext, *, key_id: str, as_json: bool) -> None:
    """Let a key open nothing from now on."""
    ended = _desk(app).revoke(key_id)
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
    new_id, random = app.home.ids.new("key_"), secrets.token_bytes(KEY_BYTES)
    _show_once(app, _desk(app).rotate(key_id, new_id, random, overlap_s=overlap_s), as_json=as_json)
    if not as_json:
        click.echo(f"Key {key_id} ends at {when(app.home.store.key(key_id).revoked_at)}.")


def _show_once(app: AppContext, made: MadeKey, *, as_json: bool) -> None:
    key = made.record
    if as_json:
        print_json({"key": made.text, **_facts(key)})
    else:
        state = _state(key, app.home.store.now())
        click.echo(f"Key {key.id} of tenant {key.tenant}, role {key.role}, {state}:\n\n    {made.text}\n")
        click.echo("It is not shown again: keep it where secrets are kept.")


def _facts(key: ApiKey) -> dict[str, Any]:
    """Without its digest, which is nobody's business."""
    fields = ("id", "tenant", "shown", "name", "project", "role", "created_at", "expires_at", "revoked_at", "replaces")
    return {name: getattr(key, name) for name in (*fields, *LIMITS)} | {"scopes": sorted(key.scopes)}


def _state(key: ApiKey, now: float) -> str:
    if key.revoked_at is not None and key.revoked_at <= now:
        return f"revoked {when(key.revoked_at)}"
    if not key.opens(now):
        return f"expired {when(key.expires_at)}"
    ends = [at for at in (key.expires_at, key.revoked_at) if at is not None]
    return f"good until {when(min(ends))}" if ends else "good"
