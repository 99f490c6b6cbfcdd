"""Prices: exact integers. Micro-units per million tokens × tokens = pico-units (10⁻⁶ · 10⁻⁶ = 10⁻¹²)."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from jobs.errors import Refused
from jobs.model import Price, Usage

PICO = 10**12
MICRO = 10**6
TOKEN_CLASSES = ("input", "cached", "output")


class BadPrice(Refused):
    """The price {text} is not INPUT/CACHED/OUTPUT: {reason}. Example: 0.15/0.075/0.60."""

    code = "bad_price"


def parse(text: str) -> tuple[int, int, int]:
    """ "0.15/0.075/0.60" (currency units per million tokens, up to six decimals) as three micro-unit integers."""
    parts = text.split("/")
    if len(parts) != len(TOKEN_CLASSES):
        raise BadPrice(text=text, reason=f"it has {len(parts)} numbers instead of 3")
    first, second, third = (_micro(part.strip(), text) for part in parts)
    return first, second, third


def _micro(number: str, whole: str) -> int:
    try:
        value = Decimal(number)
    except InvalidOperation:
        raise BadPrice(text=whole, reason=f"{number!r} is not a number") from None
    if not value.is_finite() or value < 0:
        raise BadPrice(text=whole, reason=f"{number} is not zero or more")
    if value > MICRO:
        raise BadPrice(text=whole, reason=f"{number} is more than a million a million tokens")
    exact = value.quantize(Decimal(1) / MICRO)  # rounds; a product would round too, but only past 28 digits
    if exact != value:
        raise BadPrice(text=whole, reason=f"{number} has more than six decimals")
    return int(exact * MICRO)


def amounts(price: Price, usage: Usage) -> dict[str, int]:
    """Pico-units by token class."""
    return {
        "input": price.input_micro * usage.input_tokens,
        "cached": price.cached_micro * usage.cached_tokens,
        "output": price.output_micro * usage.output_tokens,
    }


def amount(price: Price, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> int:
    """Pico-units of one row or task; `input_tokens` are the uncached ones."""
    return price.input_micro * input_tokens + price.cached_micro * cached_tokens + price.output_micro * output_tokens


def upper_bound(price: Price, *, input_tokens: int, output_tokens: int) -> int:
    """What a task may cost at most: all input at the dearer of the two input prices."""
    return max(price.input_micro, price.cached_micro) * input_tokens + price.output_micro * output_tokens


def show(pico: int, currency: str) -> str:
    """ "0.001234 USD": exact, at least six decimals, no trailing zeros beyond them."""
    sign = "-" if pico < 0 else ""
    whole, part = divmod(abs(pico), PICO)
    decimals = f"{part:012d}"
    kept = decimals[:6] + decimals[6:].rstrip("0")
    return f"{sign}{whole}.{kept} {currency}"


def show_micro(micro: int) -> str:
    """A price a million tokens, as typed: "0.15"."""
    text = f"{Decimal(micro) / MICRO:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def show_price(price: Price) -> str:
    """A price a million tokens, as typed, with its currency: "0.15/0.075/0.6 USD"."""
    figures = (price.input_micro, price.cached_micro, price.output_micro)
    return f"{'/'.join(show_micro(n) for n in figures)} {price.currency}"
