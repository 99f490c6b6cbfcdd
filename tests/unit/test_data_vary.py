"""Values that copies of a row have."""

import pytest

from infra.data.vary import check_vary
from jobs.errors import BadInput

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("values", [(), ("",), ("de", "")])
def test_a_column_that_varies_over_nothing_would_make_a_job_of_no_rows(values):
    with pytest.raises(BadInput, match="a value is empty"):
        check_vary({"lang": values})
