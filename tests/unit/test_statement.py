"""Cost statements: grouping and totals."""

import pytest

from jobs.ports.book import StatementLine
from jobs.statement import BadGrouping, StatementGroup, group, totals

pytestmark = pytest.mark.unit


def line(**changes) -> StatementLine:
    default = {
        "job": "job-1",
        "project": "shop",
        "model": "m",
        "kind": "usage",
        "token_class": "input",
        "tokens": 10,
        "amount_pico": 7,
        "currency": "USD",
        "example_price": False,
        "tags": {"team": "web"},
    }
    return StatementLine(**{**default, **changes})


LINES = [
    line(),
    line(token_class="output", tokens=3, amount_pico=10**30),
    line(job="job-2", project="lab", model="n", example_price=True, tags={}),
    line(job="job-3", currency="EUR"),
    line(job="", creator="key_a"),
    line(job="", model="n", creator="key_b"),
]


def test_a_group_adds_tokens_and_exact_amounts_by_class():
    assert group(LINES[:2]) == [
        StatementGroup(
            label="job-1",
            currency="USD",
            models=("m",),
            tokens={"input": 10, "output": 3},
            amounts_pico={"input": 7, "output": 10**30},
        )
    ]
    assert group(LINES[:2])[0].amount_pico == 10**30 + 7


@pytest.mark.parametrize(
    ("by", "labels"),
    [
        ("job", ["job-1", "job-2", "job-3", "(requests)"]),
        ("project", ["shop", "lab", "shop"]),
        ("model", ["m", "n", "m"]),
        ("key", ["(without)", "(without)", "key_a", "key_b"]),
        ("tag:team", ["web", "(without)", "web"]),
    ],
)
def test_lines_are_grouped_by_what_was_asked_and_never_across_currencies(by, labels):
    assert [item.label for item in group(LINES, by)] == labels


@pytest.mark.parametrize("by", ["tenant", "tag:", ""])
def test_an_unknown_grouping_is_refused(by):
    with pytest.raises(BadGrouping, match="Use job, project, model, key or tag:KEY"):
        group(LINES, by)


def test_totals_are_one_a_currency_and_remember_example_prices():
    sums = totals(group(LINES))
    assert [(t.currency, t.models, t.amount_pico, t.example) for t in sums] == [
        ("USD", ("m", "n"), 10**30 + 28, True),
        ("EUR", ("m",), 7, False),
    ]
