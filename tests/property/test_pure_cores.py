"""What must hold for any input: ranges, prices, the ledger, the feeder, prefix hits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import ledger, pricing, ranges
from jobs.model import Price, Usage
from jobs.quote import prefix_hits
from jobs.ranges import Range, Ranges
from tests.support.values import a_job, a_price

pytestmark = pytest.mark.property

rows = st.sets(st.integers(0, 60))
places = st.integers(0, 65)
tokens = st.integers(0, 10**9)
prices = st.integers(0, 10**12)


def of(numbers: set[int]) -> Ranges:
    return ranges.from_rows(sorted(numbers))


# ---- ranges ---------------------------------------------------------------------------------------


@given(rows)
def test_ranges_hold_exactly_the_rows_they_were_made_of_in_the_fewest_pieces(numbers):
    made = of(numbers)
    assert (list(ranges.rows_of(made)), ranges.count(made)) == (sorted(numbers), len(numbers))
    assert all(start < stop for start, stop in made)
    assert all(one.stop < two.start for one, two in pairwise(made))


@given(rows, places, places)
def test_a_stretch_is_an_intersection(numbers, start, stop):
    assert ranges.between(of(numbers), start, stop) == of(numbers & set(range(start, stop)))


@given(rows, rows)
def test_taking_away_is_a_difference(numbers, removed):
    assert ranges.minus(of(numbers), of(removed)) == of(numbers - removed)


@given(rows, places, places)
def test_positions_count_the_rows_in_order(numbers, start, stop):
    assert ranges.nth(of(numbers), start, stop) == of(set(sorted(numbers)[start:stop]))


@given(st.data(), rows)
def test_scattered_positions_pick_their_rows(data, numbers):
    positions = data.draw(st.sets(st.integers(0, len(numbers) - 1)) if numbers else st.just(set()))
    picked = {sorted(numbers)[position] for position in positions}
    assert ranges.at(of(numbers), sorted(positions)) == of(picked)


@given(rows)
def test_two_halves_are_the_whole_and_differ_by_one_row_at_most(numbers):
    first, second = ranges.halves(of(numbers))
    assert [*ranges.rows_of(first), *ranges.rows_of(second)] == sorted(numbers)
    assert ranges.count(first) - ranges.count(second) in {0, 1}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=8))
def test_adjacent_pieces_are_the_same_rows_as_joined_ones(gaps_and_sizes):
    """Tasks may hold ranges that touch; no operation may tell them apart."""
    pieces, at = [], 0
    for gap, size in gaps_and_sizes:
        pieces.append(Range(at + gap, at + gap + size))
        at += gap + size
    numbers = set(ranges.rows_of(pieces))
    assert ranges.at(pieces, range(len(numbers))) == of(numbers)
    assert set(ranges.rows_of(ranges.between(pieces, 3, 30))) == numbers & set(range(3, 30))
    assert set(ranges.rows_of(ranges.nth(pieces, 2, 9))) == set(sorted(numbers)[2:9])


# ---- prices ---------------------------------------------------------------------------------------


@given(prices, prices, prices)
def test_a_price_that_is_shown_reads_back_as_itself(first, second, third):
    text = "/".join(map(pricing.show_micro, (first, second, third)))
    assert pricing.parse(text) == (first, second, third)


@given(st.integers(-(10**24), 10**24))
def test_an_amount_that_is_shown_loses_nothing(pico):
    number, currency = pricing.show(pico, "USD").split()
    whole, decimals = number.lstrip("-").split(".")
    sign = -1 if number.startswith("-") else 1
    assert (sign * int(whole + decimals.ljust(12, "0")), currency) == (pico, "USD")
    assert len(decimals) >= 6
    assert not decimals[6:].endswith("0")


def price_of(first: int, second: int, third: int) -> Price:
    return a_price(input_micro=first, cached_micro=second, output_micro=third)


a_price_at_all = st.builds(price_of, prices, prices, prices)
usages = st.builds(Usage, input_tokens=tokens, cached_tokens=tokens, output_tokens=tokens)


@given(a_price_at_all, usages, usages)
def test_the_amount_of_a_sum_is_the_sum_of_the_amounts(price, one, other):
    """Rows may be priced one by one, by task or by job: the figure is the same to the last digit."""

    def total(usage: Usage) -> int:
        return sum(pricing.amounts(price, usage).values())

    assert total(one.plus(other)) == total(one) + total(other)
    assert total(one) == pricing.amount(
        price, input_tokens=one.input_tokens, cached_tokens=one.cached_tokens, output_tokens=one.output_tokens
    )


@given(a_price_at_all, usages)
def test_no_split_into_cached_and_uncached_passes_the_upper_bound(price, usage):
    bound = pricing.upper_bound(
        price, input_tokens=usage.input_tokens + usage.cached_tokens, output_tokens=usage.output_tokens
    )
    assert sum(pricing.amounts(price, usage).values()) <= bound


# ---- ledger ---------------------------------------------------------------------------------------


@given(a_price_at_all, usages, usages)
def test_a_charge_and_its_waste_balance_and_name_all_tokens(price, used, wasted):
    job = a_job(price=price)
    charge = ledger.charge(job, "j.0", used, 0.0)
    waste = ledger.waste(job, "j.0", 1, "drain", wasted, 0.0)
    ledger.check_balanced([*charge, *waste])
    assert sum(e.tokens for e in charge) == used.input_tokens + used.cached_tokens + used.output_tokens
    assert sum(e.tokens for e in waste) == wasted.input_tokens + wasted.cached_tokens + wasted.output_tokens
    assert ledger.balances(charge)["tenant:t:usage", "USD"] == sum(pricing.amounts(price, used).values())
    assert ("tenant:t:usage", "USD") not in ledger.balances(waste)


# ---- prefix hits ----------------------------------------------------------------------------------

prompts = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=8)


def leading_blocks_seen(prompt: list[int], before: list[list[int]], size: int) -> int:
    """The most whole blocks that a prompt has in common with a single earlier one, its own last token left out."""
    for blocks in range((len(prompt) - 1) // size, 0, -1):
        if any(p[: blocks * size] == prompt[: blocks * size] for p in before):
            return blocks
    return 0


@given(prompts, st.integers(1, 4))
def test_prefix_hits_are_what_looking_back_at_every_prompt_finds(found, size):
    """FACTS: sum over prompts of (leading blocks already seen, out of floor((len−1)/B)) × B."""
    expected = sum(size * leading_blocks_seen(prompt, found[:at], size) for at, prompt in enumerate(found))
    assert prefix_hits(found, size) == expected


@given(prompts, st.integers(1, 4))
def test_no_order_hits_more_than_the_lexicographic_one(found, size):
    assert prefix_hits(found, size) <= prefix_hits(sorted(found), size) == optimum(found, size)


def optimum(found: list[list[int]], size: int) -> int:
    """By nodes of the block tree: each longer prompt hits a node but the first, which hits if one that ends there
    came before.
    """
    total = 0
    for node in {tuple(p[: b * size]) for p in found for b in range(1, len(p) // size + 1)}:
        through = [len(p) > len(node) for p in found if tuple(p[: len(node)]) == node]
        total += size * max(0, sum(through) - all(through))
    return total
