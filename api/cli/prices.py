"""`nightmill prices`: what models cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table
from jobs.pricing import parse, show_micro, show_price

if TYPE_CHECKING:
    from jobs.model import Price


@click.group()
def prices() -> None:
    """Set and list what models cost."""


@prices.command("set")
@click.argument("model")
@click.argument("price", required=False, metavar="[IN/CACHED/OUT]")
@click.option("--free", is_flag=True, help="The price is zero, said on purpose.")
@json_option
@pass_app
def set_price(app: AppContext, model: str, price: str | None, free: bool, as_json: bool) -> None:
    """Set a model's price a million tokens: uncached input, cached input, output; up to six decimals each.

    Jobs that were submitted keep the price they were submitted with.
    """
    from infra.models import prices as book

    text = price_text(price, free=free)
    if text is None:
        msg = f"Say what {model} costs: INPUT/CACHED/OUTPUT, as 0.15/0.075/0.60, or --free."
        raise click.UsageError(msg)
    app.home.registry.check_known(model)
    now = app.home.clock.now()
    new = book.set_price(app.home.store, model, text, app.settings.currency, now=now, actor=app.actor)
    if as_json:
        print_json(new)
    else:
        click.echo(f"{model} costs {shown_price(new)} from now on (version {new.version}).")


@prices.command("list")
@click.option("--all", "all_versions", is_flag=True, help="Also the versions that hold no longer.")
@json_option
@pass_app
def list_prices(app: AppContext, all_versions: bool, as_json: bool) -> None:
    """The price of each model that has one."""
    found: list[Price] = []
    for price in app.home.store.prices():
        if all_versions or not found or found[-1].model != price.model:
            found.append(price)
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("No model has a price yet; the shipped ones get an example price when they are first used.")
        return
    columns = ["MODEL", "INPUT>", "CACHED>", "OUTPUT>", "CURRENCY", "VERSION", ""]
    table(columns, [_row(price) for price in found])
    click.echo("A million tokens each.")


def _row(price: Price) -> list[str]:
    figures = [show_micro(n) for n in (price.input_micro, price.cached_micro, price.output_micro)]
    return [price.model, *figures, price.currency, price.version, "example" if price.example else ""]


def price_text(price: str | None, *, free: bool) -> str | None:
    """The one of --price and --free that was given, as price text. Raises UsageError for both, BadPrice."""
    if price is not None and free:
        msg = "Give a price or --free, not both."
        raise click.UsageError(msg)
    if price is not None:
        parse(price)
    return "0/0/0" if free else price


def shown_price(price: Price | None) -> str | None:
    """Such as "0.15/0.075/0.6 USD"."""
    if price is None:
        return None
    return show_price(price) + (" (example)" if price.example else "")
