"""jobs/ledger.py: what a task's usage becomes in the book, and when the book is wrong."""

import pytest

from jobs import ledger
from jobs.errors import LedgerBroken
from jobs.ledger import Entry
from tests.support.values import a_job, a_usage

pytestmark = pytest.mark.unit

USAGE = a_usage(rows=10, input_tokens=100, cached_tokens=40, output_tokens=50)


def an_entry(**changes):
    plain = Entry(
        txn="use:j.0",
        line=0,
        kind="usage",
        account="tenant:t:usage",
        amount_pico=15_000_000,
        currency="USD",
        tenant="t",
        project="p",
        tags={"team": "search"},
        creator="alice",
        job="j",
        task="j.0",
        model="m",
        price_version="p1",
        token_class="input",
        tokens=100,
        at=7.0,
    )
    return plain.evolve(**changes)


def test_a_charge_has_a_line_a_token_class_and_one_that_balances_them():
    revenue = {"account": "platform:revenue:m", "token_class": "", "tokens": 0}
    assert ledger.charge(a_job(), "j.0", USAGE, at=7.0) == (
        an_entry(),
        an_entry(line=1, amount_pico=3_000_000, token_class="cached", tokens=40),
        an_entry(line=2, amount_pico=30_000_000, token_class="output", tokens=50),
        an_entry(line=3, amount_pico=-48_000_000, **revenue),
    )


def test_waste_is_the_platforms_and_its_key_is_the_task_the_epoch_and_the_cause():
    wasted = {"txn": "waste:j.0:3:engine_died", "kind": "waste"}
    assert ledger.waste(a_job(), "j.0", 3, "engine_died", USAGE, at=7.0) == (
        an_entry(**wasted, account="platform:waste", amount_pico=48_000_000, token_class="all", tokens=190),
        an_entry(**wasted, line=1, account="platform:capacity", amount_pico=-48_000_000, token_class="", tokens=0),
    )


def test_a_task_of_nothing_but_faults_is_charged_nothing_and_still_posted():
    entries = ledger.charge(a_job(), "j.0", a_usage(input_tokens=0, cached_tokens=0, output_tokens=0), at=0.0)
    assert [entry.amount_pico for entry in entries] == [0, 0, 0, 0]


def test_balances_are_kept_apart_by_account_and_currency():
    entries = [an_entry(amount_pico=5), an_entry(amount_pico=2), an_entry(amount_pico=9, currency="EUR")]
    assert ledger.balances(entries) == {("tenant:t:usage", "USD"): 7, ("tenant:t:usage", "EUR"): 9}


def test_a_transaction_that_does_not_sum_to_zero_is_named():
    ledger.check_balanced(ledger.charge(a_job(), "j.0", USAGE, at=0.0))
    with pytest.raises(LedgerBroken, match=r"transaction use:j\.0 is off by 15000000 pico-USD"):
        ledger.check_balanced([an_entry()])


def test_two_currencies_do_not_balance_each_other():
    with pytest.raises(LedgerBroken):
        ledger.check_balanced([an_entry(amount_pico=5), an_entry(amount_pico=-5, currency="EUR")])


def test_a_seal_changes_with_every_field_with_the_order_and_with_what_came_before():
    entries = [an_entry(), an_entry(line=1)]
    changed = [
        [an_entry(**{name: value}), entries[1]]
        for name, value in {
            "txn": "x",
            "line": 9,
            "kind": "x",
            "account": "x",
            "amount_pico": 1,
            "currency": "EUR",
            "tenant": "x",
            "project": "x",
            "tags": {},
            "creator": "x",
            "job": "x",
            "task": "x",
            "model": "x",
            "price_version": "x",
            "token_class": "x",
            "tokens": 1,
            "at": 1.0,
        }.items()
    ]
    assert len(changed) == len(Entry.__slots__)
    seals = [ledger.seal(ledger.GENESIS, block) for block in [entries, entries[::-1], entries[:1], [], *changed]]
    seals.append(ledger.seal("f" * 64, entries))
    assert len(set(seals)) == len(seals)


def test_a_seal_does_not_depend_on_the_order_of_tags():
    one, other = an_entry(tags={"a": "1", "b": "2"}), an_entry(tags={"b": "2", "a": "1"})
    assert ledger.seal(ledger.GENESIS, [one]) == ledger.seal(ledger.GENESIS, [other])
