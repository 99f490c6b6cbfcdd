"""`nightmill ledger`: the book."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.output import print_json, table
from jobs.pricing import TOKEN_CLASSES, show

if TYPE_CHECKING:
    from jobs.statement import StatementGroup


class When(click.ParamType[float]):
    """A date or time of ISO 8601, UTC unless it says otherwise; as seconds since the epoch."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no date or time, as 2026-11-29 or 2026-11-29T15:00.", param, ctx)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@click.group()
def ledger() -> None:
    """Cost statements, balances, and a check of the book."""


@ledger.command()
@click.option("--tenant", help="Whose statement; default: the setting `tenant`.")
@click.option("--since", type=When(), metavar="TIME", help="From this date or time on (ISO 8601, UTC).")
@click.option("--until", type=When(), metavar="TIME", help="Before this date or time.")
@click.option(
    "--by", default="job", show_default=True, metavar="job|project|model|key|tag:KEY", help="One line for each."
)
@json_option
@pass_app
def statement(
    app: AppContext, tenant: str | None, since: float | None, until: float | None, by: str, as_json: bool
) -> None:
    """What a tenant owes, with tokens and exact amounts by token class."""
    from jobs.statement import group, totals

    tenant = tenant or app.settings.tenant
    _fold(app)
    groups = group(app.home.store.statement(tenant, since=since, until=until), by)
    sums = totals(groups)
    if as_json:
        print_json({"tenant": tenant, "by": by, "groups": [*map(_plain, groups)], "totals": [*map(_plain, sums)]})
        return
    if not groups:
        click.echo(f"Tenant {tenant} has no costs in this time.")
        return
    print_groups(by, [*groups, *sums])
    if any(item.example for item in sums):
        click.echo("* At an example price, shipped for trying out: nightmill prices set MODEL INPUT/CACHED/OUTPUT")


def print_groups(by: str, groups: list[StatementGroup]) -> None:
    """The statement's table, also for the end of a run."""
    columns = [by.upper(), "MODEL", *(f"{c.upper()} TOKENS>" for c in TOKEN_CLASSES), "AMOUNT>"]
    table(columns, [_row(item) for item in groups])


def _row(item: StatementGroup) -> list[object]:
    mark = " *" if item.example else ""
    tokens = [item.tokens.get(name, 0) for name in TOKEN_CLASSES]
    return [item.label, ", ".join(item.models), *tokens, show(item.amount_pico, item.currency) + mark]


def _plain(item: StatementGroup) -> dict[str, object]:
    return {
        "label": item.label,
        "models": item.models,
        "tokens": item.tokens,
        "amounts_pico": item.amounts_pico,
        "amount_pico": item.amount_pico,
        "amount": show(item.amount_pico, item.currency),
        "currency": item.currency,
        "example_price": item.example,
    }


@ledger.command()
@json_option
@pass_app
def balance(app: AppContext, as_json: bool) -> None:
    """Every account's balance: what tenants owe (positive) against what the platform earned and wasted."""
    _fold(app)
    found = sorted(app.home.store.balances().items())
    if as_json:
        print_json([{"account": a, "currency": c, "amount_pico": n, "amount": show(n, c)} for (a, c), n in found])
        return
    if not found:
        click.echo("The book is empty.")
        return
    table(["ACCOUNT", "BALANCE>"], [[account, show(pico, currency)] for (account, currency), pico in found])


@ledger.command()
@json_option
@pass_app
def verify(app: AppContext, as_json: bool) -> Exit:
    """Read the whole book: every transaction balances, every balance is its entries, nothing was changed."""
    _fold(app)
    report = app.home.store.verify()
    if as_json:
        print_json({"sound": not report.faults, "report": report})
    else:
        click.echo(f"{report.transactions:,} transactions, {report.entries:,} entries, {report.blocks:,} sealed blocks")
        for fault in report.faults:
            click.echo(f"FAULT: {fault}")
        click.echo(f"The book has {len(report.faults)} faults." if report.faults else "The book is sound.")
    return Exit.BUG if report.faults else Exit.OK


def _fold(app: AppContext) -> None:
    """Commits trail into balances; a reader wants all of them."""
    while app.home.store.fold().transactions:
        pass
