"""jobs/pricing.py: prices as typed, amounts as exact integers."""

import pytest

from jobs import pricing
from jobs.pricing import BadPrice
from tests.support.values import a_price, a_usage

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "micro"),
    [
        ("0.15/0.075/0.60", (150_000, 75_000, 600_000)),
        ("0/0/0", (0, 0, 0)),
        (" 1 / 2e-6 / 1000000 ", (1_000_000, 2, 1_000_000_000_000)),
    ],
)
def test_a_price_is_read_exactly(text, micro):
    assert pricing.parse(text) == micro


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0.15/0.60", "it has 2 numbers instead of 3"),
        ("", "it has 1 numbers instead of 3"),
        ("0.15/cheap/0.60", "'cheap' is not a number"),
        ("0.15//0.60", "'' is not a number"),
        ("0.15/-0.01/0.60", "-0.01 is not zero or more"),
        ("0.15/NaN/0.60", "NaN is not zero or more"),
        ("0.15/sNaN/0.60", "sNaN is not zero or more"),
        ("0.15/Infinity/0.60", "Infinity is not zero or more"),
        ("0.15/0.0000001/0.60", "0.0000001 has more than six decimals"),
        ("1.0000000000000000000000000000001/0/0", "1.0000000000000000000000000000001 has more than six decimals"),
        ("1e-999999999/0/0", "1e-999999999 has more than six decimals"),
        ("1000000.000001/0/0", "1000000.000001 is more than a million a million tokens"),
        ("1e999999999/0/0", "1e999999999 is more than a million a million tokens"),
    ],
)
def test_what_is_no_price_is_refused_with_its_reason(text, reason):
    with pytest.raises(BadPrice) as caught:
        pricing.parse(text)
    assert str(caught.value) == f"The price {text} is not INPUT/CACHED/OUTPUT: {reason}. Example: 0.15/0.075/0.60."


def test_each_token_class_has_its_own_amount():
    usage = a_usage(input_tokens=1000, cached_tokens=200, output_tokens=30)
    assert pricing.amounts(a_price(), usage) == {
        "input": 150_000 * 1000,
        "cached": 75_000 * 200,
        "output": 600_000 * 30,
    }


def test_a_million_tokens_cost_the_price():
    pico = pricing.amount(a_price(), input_tokens=1_000_000, cached_tokens=0, output_tokens=0)
    assert pricing.show(pico, "USD") == "0.150000 USD"


@pytest.mark.parametrize(
    ("pico", "shown"),
    [
        (0, "0.000000 USD"),
        (1, "0.000000000001 USD"),
        (1_234_000_000, "0.001234 USD"),
        (1_234_560_000, "0.00123456 USD"),
        (-1_500_000_000_000, "-1.500000 USD"),
        (12_345_678_000_000_000_000, "12345678.000000 USD"),
    ],
)
def test_an_amount_is_shown_exactly_with_six_decimals_or_more(pico, shown):
    assert pricing.show(pico, "USD") == shown


@pytest.mark.parametrize(
    ("micro", "shown"), [(150_000, "0.15"), (0, "0"), (1, "0.000001"), (10_000_000, "10"), (10**12, "1000000")]
)
def test_a_price_is_shown_as_it_is_typed(micro, shown):
    assert pricing.show_micro(micro) == shown


def test_the_upper_bound_is_never_less_than_the_amount_however_the_input_splits():
    dear_cache = a_price(input_micro=1, cached_micro=9)
    assert pricing.upper_bound(dear_cache, input_tokens=10, output_tokens=1) == 9 * 10 + 600_000
