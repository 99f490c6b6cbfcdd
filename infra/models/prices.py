"""Prices of models: new versions, and the example prices of the shipped ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

from infra.models.shipped import SHIPPED
from jobs.errors import Refused
from jobs.model import Price
from jobs.ports.book import LedgerStore, PriceStore
from jobs.pricing import parse

FREE = "0/0/0"


class Book(PriceStore, LedgerStore, Protocol):
    """Prices, and what was posted at them."""


class OtherCurrency(Refused):
    """The book is kept in {book}, so no price can be in {currency}. Set currency = "{book}", or use another home."""

    code = "other_currency"


def set_price(store: Book, model: str, text: str, currency: str, *, now: float, actor: str) -> Price:
    """A new price version of a model, from "INPUT/CACHED/OUTPUT". Raises BadPrice, OtherCurrency.

    Jobs keep the version they were submitted with. now: seconds since the epoch; it names the version.
    """
    figures = parse(text)
    check_currency(store, currency)
    version = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    price = _price(model, version, figures, currency)
    store.set_price(price, actor)
    return price


def ensure_example_prices(store: Book, models: Iterable[str], currency: str) -> None:
    """Give shipped models that have no price in this currency their example price. Raises OtherCurrency."""
    for model in models:
        price = store.price(model) if model in SHIPPED else None
        if model not in SHIPPED or (price is not None and not (price.example and price.currency != currency)):
            continue
        check_currency(store, currency)
        figures = parse(SHIPPED[model].price)
        store.set_price(_price(model, f"example-{currency}", figures, currency, example=True))


def check_currency(store: Book, currency: str) -> None:
    """A book has one currency: that of its postings, and of the prices that are no examples. Raises OtherCurrency."""
    posted = [found for _, found in store.balances()]
    for found in [*posted, *(price.currency for price in store.prices() if not price.example)]:
        if found != currency:
            raise OtherCurrency(book=found, currency=currency)


def _price(model: str, version: str, figures: tuple[int, int, int], currency: str, *, example: bool = False) -> Price:
    return Price(
        version=version,
        model=model,
        currency=currency,
        input_micro=figures[0],
        cached_micro=figures[1],
        output_micro=figures[2],
        example=example,
    )
