"""Write examples/cars.parquet: the 406 cars of the package vega_datasets, nulls and all."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DEFAULT = Path(__file__).with_name("cars.parquet")

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("Name", pa.string()),
        pa.field("Miles_per_Gallon", pa.float64()),  # null for 8 cars
        pa.field("Cylinders", pa.int16()),
        pa.field("Displacement", pa.float64()),
        pa.field("Horsepower", pa.int16()),  # null for 6 cars
        pa.field("Weight_in_lbs", pa.int32()),
        pa.field("Acceleration", pa.float64()),
        pa.field("Year", pa.int16()),  # a date there, always 1 January; a year reads better in a prompt
        pa.field("Origin", pa.string()),
    ]
)


def read_cars() -> list[dict[str, Any]]:
    """The cars as the package has them. The package itself is not imported: that would ask for pandas."""
    spec = importlib.util.find_spec("vega_datasets")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("The package vega_datasets is not installed. Run: make setup")
    text = (Path(spec.submodule_search_locations[0]) / "_data/cars.json").read_text(encoding="utf-8")
    return list(json.loads(text))


def cars_table() -> pa.Table:
    """One row a car, in the data set's order, with an `id` from "car-001"."""
    rows = [
        {**car, "id": f"car-{number:03}", "Year": int(car["Year"][:4])}
        for number, car in enumerate(read_cars(), start=1)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def main() -> None:
    """Write it where the first argument says, or beside this script."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    table = cars_table()
    pq.write_table(table, target, compression="zstd")
    print(f"{target}: {table.num_rows} cars, {table.num_columns} columns")


if __name__ == "__main__":
    main()
