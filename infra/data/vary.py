"""`--vary`: which value each copy of a row has. The value declared last changes fastest."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from jobs.model import JobSpec


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
    texts = ["".join(f":{value}" for value in values) for values in product(*spec.vary.values())]
    return pa.array(texts, pa.string()).take(copy_numbers(spec, rows))
