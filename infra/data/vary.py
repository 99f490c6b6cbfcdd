"""`--vary`: which value each copy of a row has. The value declared last changes fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import prod

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import BadInput
from jobs.model import JobSpec

MOST_COPIES = 10_000
"""Of a row. They are held in memory for each task, and all that names them grows with their number."""


def check_vary(vary: Mapping[str, Sequence[str]]) -> None:
    """Ids of copies must differ, also from those of other rows' copies. Raises BadInput."""
    if (copies := prod(len(values) for values in vary.values())) > MOST_COPIES:
        reason = f"the values make {copies:,} copies of each row; there may be {MOST_COPIES:,}"
        raise BadInput(source="--vary", reason=reason)
    for name, values in vary.items():
        option = f"--vary {name}"
        if not values or not all(values):
            raise BadInput(source=option, reason="a value is empty; write it as --vary lang=de,fr")
        twice = [value for value, next_value in pairwise(sorted(values)) if value == next_value]
        if twice:
            raise BadInput(source=option, reason=f"the value {twice[0]!r} is given twice")
    if any(":" in value for values in vary.values() for value in values):
        _check_colons(vary)


def _check_colons(vary: Mapping[str, Sequence[str]]) -> None:
    """ "a" with ":x:y" would be "a:x" with ":y". Backwards and sorted, what ends as another does stands behind it."""
    for end, other in pairwise(sorted(end[::-1] for end in _suffixes(vary))):
        if other.startswith(end):
            reason = f"with colons in the values, ids that end in {end[::-1]!r} may be made in two ways"
            raise BadInput(source="--vary", reason=f"{reason}; use other values")


def vary_columns(spec: JobSpec, rows: pa.Array) -> dict[str, pa.Array]:
    """The varied columns for these job rows, as strings."""
    if not spec.vary:
        return {}
    places = copy_numbers(spec, rows)
    combinations = list(product(*spec.vary.values()))
    return {
        name: pa.array([values[number] for values in combinations], pa.string()).take(places)
        for number, name in enumerate(spec.vary)
    }


def copy_numbers(spec: JobSpec, rows: pa.Array) -> pa.Array:
    """Which copy of its input row each job row is, from 0."""
    return pc.subtract(rows, pc.multiply(pc.divide(rows, spec.copies), spec.copies))


def vary_suffix(spec: JobSpec, rows: pa.Array) -> pa.Array:
    """ ":de" or ":de:short": what makes the ids of copies differ."""
    return pa.array(_suffixes(spec.vary), pa.string()).take(copy_numbers(spec, rows))


def _suffixes(vary: Mapping[str, Sequence[str]]) -> list[str]:
    return ["".join(f":{value}" for value in values) for values in product(*vary.values())]
