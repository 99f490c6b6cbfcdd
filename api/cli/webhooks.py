"""`nightmill webhooks`: who is told when jobs and batches end, and what was sent."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table, when
from jobs.delivering import new_webhook
from jobs.webhooks import EVENTS, SECRET_BYTES, Delivery, Webhook, secret_of

_STATES = {"open": "", "delivered": "delivered", "failed": "failed"}
_SHOWN = 60


@click.group()
def webhooks() -> None:
    """Say who is told of the ends of jobs and batches, and see what was sent.

    Messages are signed as Standard Webhooks says (docs/webhooks.md) and sent again until they are taken: ten times in
    three days.
    """


@webhooks.command()
@click.argument("url")
@click.option("--tenant", help="Of whose jobs. Default: the setting `tenant`.")
@click.option("--name", default="", help="What it is for.")
@click.option(
    "--event", "events", type=click.Choice(EVENTS), multiple=True, help="Only of this; repeatable. Default: of all."
)
@json_option
@pass_app
def add(app: AppContext, *, url: str, tenant: str | None, name: str, events: Sequence[str], as_json: bool) -> None:
    """Tell URL of every job and batch of a tenant that ends. Its secret is shown, this once."""
    home = app.home
    home.outward.calls.check(url)
    secret = secret_of(secrets.token_bytes(SECRET_BYTES))
    made = new_webhook(
        home.ids.new("we_"), tenant=tenant or app.settings.tenant, url=url, secret=secret, seal=home.outward.seal
    )
    kept = home.store.add_webhook(made.evolve(name=name, events=tuple(events)), app.actor)
    if as_json:
        print_json({"secret": secret, **_facts(kept)})
        return
    click.echo(f"Webhook {kept.id} of tenant {kept.tenant}. Its secret, with which receivers check messages:\n")
    click.echo(f"    {secret}\n\nIt is not shown again: keep it where secrets are kept.")


@webhooks.command("list")
@click.option("--tenant", help="Only this tenant's.")
@json_option
@pass_app
def list_webhooks(app: AppContext, *, tenant: str | None, as_json: bool) -> None:
    """Those that are told of every job and batch of their tenant, the newest first."""
    found = app.home.store.webhooks(tenant)
    if as_json:
        print_json([_facts(webhook) for webhook in found])
        return
    rows = [(w.id, w.tenant, w.url, w.name, ", ".join(w.events) or "all", when(w.created_at)) for w in found]
    table(("ID", "TENANT", "URL", "NAME", "EVENTS", "SINCE"), rows)


@webhooks.command()
@click.argument("webhook_id", metavar="WEBHOOK_ID")
@json_option
@pass_app
def remove(app: AppContext, *, webhook_id: str, as_json: bool) -> None:
    """Tell it nothing more; what it was not yet told of, it is not."""
    ended = app.home.store.end_webhook(webhook_id, tenant=None, actor=app.actor)
    if as_json:
        print_json(_facts(ended))
    else:
        click.echo(f"Webhook {ended.id} of {ended.tenant} is removed.")


@webhooks.command()
@click.option("--tenant", help="Only this tenant's.")
@click.option("--webhook", "webhook_id", help="Only to this one.")
@click.option("--state", type=click.Choice([*_STATES]), help="Only those that stand so.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="So many at most.")
@json_option
@pass_app
def deliveries(
    app: AppContext, *, tenant: str | None, webhook_id: str | None, state: str | None, limit: int, as_json: bool
) -> None:
    """What is or was to be sent, the newest first."""
    outcome = None if state is None else _STATES[state]
    found = app.home.store.deliveries(tenant, webhook=webhook_id, outcome=outcome, limit=limit)
    if as_json:
        print_json([_sent(delivery) for delivery in found])
        return
    rows = [
        (d.id, d.webhook, d.event, d.subject, d.outcome or "open", d.attempts, when(d.next_at), d.reason[:_SHOWN])
        for d in found
    ]
    table(("ID", "WEBHOOK", "EVENT", "OF", "STATE", "ATTEMPTS>", "NEXT", "REASON"), rows)


@webhooks.command()
@click.argument("delivery_id", metavar="DELIVERY_ID")
@json_option
@pass_app
def resend(app: AppContext, *, delivery_id: str, as_json: bool) -> None:
    """Send a message again, under the id it had, whatever became of it."""
    again = app.home.store.resend(delivery_id)
    if as_json:
        print_json(_sent(again))
    else:
        click.echo(f"{again.id} ({again.event} of {again.subject}) is sent again by what is up.")


def _facts(webhook: Webhook) -> dict[str, Any]:
    """Without its secret, sealed or not."""
    fields = ("id", "tenant", "url", "name", "events", "created_at", "ended_at")
    return {name: getattr(webhook, name) for name in fields}


def _sent(delivery: Delivery) -> dict[str, Any]:
    fields = ("id", "webhook", "tenant", "event", "subject", "attempts", "next_at", "status", "reason", "created_at")
    return {name: getattr(delivery, name) for name in fields} | {"state": delivery.outcome or "open"}
