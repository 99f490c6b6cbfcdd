"""Prints a quote: rows, tokens by class, price, time, and the first prompt as the engine would get it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from api.cli.exits import Exit
from api.cli.output import print_json
from api.cli.view import duration_text
from infra.bootstrap import Home
from jobs.model import Model, Price
from jobs.ports.intake import SubmitRequest
from jobs.pricing import show
from jobs.prompts import messages_of, plain_text
from jobs.quote import Quote, quote
from jobs.submit import Checked, check

SAMPLE_ROWS = 500
BLOCK_SIZE = 32
UNKNOWN_CONTEXT = 4096


def show_quote(home: Home, request: SubmitRequest, *, as_json: bool) -> Exit:
    """Check the request as a run would, sample it, and say what it comes to."""
    home.example_prices(request.model)
    checked = check(request, intake=home.intake, models=home.registry, store=home.store)
    found = quote_of(home, checked)
    if as_json:
        print_json(found)
    else:
        _print(found, checked.model, checked.price, checked.examined.spec.input)
    return Exit.OK


def quote_of(home: Home, checked: Checked) -> Quote:
    """The quote of a checked request."""
    rows = home.intake.sample(checked.examined, checked.model, SAMPLE_ROWS, seed=0)
    return quote(
        rows=checked.examined.total_rows,
        sample=rows,
        tokenizer=home.tokenizer(checked.model),
        price=checked.price,
        context=home.context_length(checked.model) or UNKNOWN_CONTEXT,
        block_size=BLOCK_SIZE,
        speed=home.store.speed(checked.model.name),
        embedding=checked.model.kind == "embedding",
    )


def _print(found: Quote, model: Model, price: Price, source: str) -> None:
    for name, value in _lines(found, model, price, source):
        click.echo(f"{name:<16} {value}")
    if found.first_prompt is not None:
        click.echo(f"\nThe prompt of row {found.first_row}:\n{_prompt_text(found)}")


def _lines(found: Quote, model: Model, price: Price, source: str) -> Iterator[tuple[str, str]]:
    usage = found.usage
    exact = "the model's own tokenizer" if found.exact_tokens else "characters, about 4 a token"
    yield "input", source
    yield "rows", f"{found.rows:,}  ({found.sampled:,} sampled; tokens by {exact})"
    if found.faults:
        yield "", f"{found.faults:,} of the sampled rows would be errors before they reach the engine"
    yield "uncached input", f"{usage.input_tokens:,} tokens"
    yield "cached input", f"{usage.cached_tokens:,} tokens  ({found.cached_share:.0%} expected from the prefix cache)"
    yield "output", f"at most {usage.output_tokens:,} tokens"
    mark = "  (example price)" if price.example else ""
    yield "cost", f"at most {show(found.amount_pico, found.currency)}{mark}"
    unknown = f"unknown: {model.name} has not run here long enough to be timed"
    yield "time", f"about {duration_text(found.seconds)}" if found.seconds else unknown


def _prompt_text(found: Quote) -> str:
    prompt = found.first_prompt or ""
    return "\n".join(f"[{role}] {''.join(rest)}" for role, *rest in messages_of(prompt)) or plain_text(prompt)
