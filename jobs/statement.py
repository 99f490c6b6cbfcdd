"""A cost statement: the lines of a tenant's book grouped for a reader. Pure; amounts stay exact integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from jobs.errors import Refused
from jobs.model import Value
from jobs.ports.book import StatementLine

TAG = "tag:"
NO_TAG = "(without)"
REQUESTS = "(requests)"
"""The label, by job, of all interactive requests: they have none."""


class BadGrouping(Refused):
    """A statement cannot be grouped by {by}. Use job, project, model, key or tag:KEY."""

    code = "bad_grouping"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementGroup(Value):
    """One group in one currency, so the numbers in it may be added.

    tokens, amounts_pico: by token class. example: some of it is at a price that was shipped for trying out.
    """

    label: str
    currency: str
    models: tuple[str, ...] = ()
    tokens: Mapping[str, int] = field(default_factory=dict)
    amounts_pico: Mapping[str, int] = field(default_factory=dict)
    example: bool = False

    @property
    def amount_pico(self) -> int:
        return sum(self.amounts_pico.values())


def group(lines: Iterable[StatementLine], by: str = "job") -> list[StatementGroup]:
    """The groups in the order in which their first lines come. by: "job", "project", "model", "key" or "tag:KEY".

    Raises BadGrouping.
    """
    label = _labeller(by)
    out: dict[tuple[str, str], StatementGroup] = {}
    for line in lines:
        place = label(line), line.currency
        out[place] = _plus(out.get(place) or StatementGroup(label=place[0], currency=place[1]), line)
    return list(out.values())


def totals(groups: Iterable[StatementGroup]) -> list[StatementGroup]:
    """One group a currency, labelled "total"."""
    out: dict[str, StatementGroup] = {}
    for item in groups:
        before = out.get(item.currency) or StatementGroup(label="total", currency=item.currency)
        out[item.currency] = before.evolve(
            models=_with(before.models, item.models),
            tokens=_sum(before.tokens, item.tokens),
            amounts_pico=_sum(before.amounts_pico, item.amounts_pico),
            example=before.example or item.example,
        )
    return list(out.values())


def _labeller(by: str) -> Callable[[StatementLine], str]:
    if by == "job":
        return lambda line: line.job or REQUESTS
    if by == "key":
        return lambda line: line.creator or NO_TAG
    if by in {"project", "model"}:
        return lambda line: str(getattr(line, by))
    if by.startswith(TAG) and len(by) > len(TAG):
        key = by.removeprefix(TAG)
        return lambda line: line.tags.get(key, NO_TAG)
    raise BadGrouping(by=by)


def _plus(before: StatementGroup, line: StatementLine) -> StatementGroup:
    return before.evolve(
        models=_with(before.models, [line.model]),
        tokens=_sum(before.tokens, {line.token_class: line.tokens}),
        amounts_pico=_sum(before.amounts_pico, {line.token_class: line.amount_pico}),
        example=before.example or line.example_price,
    )


def _with(before: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*before, *more}))


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}
