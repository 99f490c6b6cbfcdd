"""examples/make_cars.py: the data set as it is, nulls and all."""

import pyarrow as pa
import pytest

from examples.make_cars import cars_table

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def cars():
    return cars_table()


def test_all_cars_are_there_with_unique_ids(cars):
    assert cars.num_rows == 406
    assert cars["id"].to_pylist() == [f"car-{number:03}" for number in range(1, 407)]


def test_nulls_stay_null(cars):
    nulls = {name: cars[name].null_count for name in cars.column_names if cars[name].null_count}
    assert nulls == {"Miles_per_Gallon": 8, "Horsepower": 6}


def test_a_year_reads_as_a_year(cars):
    assert cars.schema.field("Year").type == pa.int16()
    assert set(cars["Year"].to_pylist()) <= set(range(1970, 1983))
