"""Values that copies of a row have."""

import pytest

from infra.data.vary import check_vary
from jobs.errors import BadInput

pytestmark = pytest.mark.unit


def test_ids_that_could_be_made_in_two_ways_are_refused():
    with pytest.raises(BadInput, match="ids that end in ':y' may be made in two ways"):
        check_vary({"lang": ("b", "x:y", "y", "z")})
    check_vary({"lang": ("a:b", "a:c"), "tone": ("d", "e:f")})


def test_a_row_has_ten_thousand_copies_at_most():
    hundred = tuple(str(number) for number in range(100))
    check_vary({"a": hundred, "b": hundred})
    with pytest.raises(BadInput, match="20,000 copies of each row; there may be 10,000"):
        check_vary({"a": hundred, "b": hundred, "c": ("x", "y")})


@pytest.mark.parametrize("values", [(), ("",), ("de", "")])
def test_a_column_that_varies_over_nothing_would_make_a_job_of_no_rows(values):
    with pytest.raises(BadInput, match="a value is empty"):
        check_vary({"lang": values})
