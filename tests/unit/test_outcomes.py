"""jobs/outcomes.py: from a finish reason to an outcome."""

import pytest

from jobs.model import Outcome
from jobs.outcomes import of_result, share_spoiled

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("reason", "code", "given", "outcome"),
    [
        pytest.param("stop", None, {}, (Outcome.OK, None), id="complete is ok"),
        pytest.param("length", None, {}, (Outcome.TRUNCATED, None), id="cut off is not ok"),
        pytest.param(
            "length", None, {"fits_schema": False}, (Outcome.TRUNCATED, None), id="cut off, whatever it looks like"
        ),
        pytest.param(
            "stop", None, {"fits_schema": False}, (Outcome.ERROR, "schema_mismatch"), id="complete but not as asked"
        ),
        pytest.param(
            "error", "context_length_exceeded", {}, (Outcome.ERROR, "context_length_exceeded"), id="the engine's code"
        ),
        pytest.param("error", None, {}, (Outcome.ERROR, "engine_error"), id="an engine without a code"),
        pytest.param(
            "abort", None, {"ending": Outcome.CANCELLED}, (Outcome.CANCELLED, None), id="aborted in a cancelled job"
        ),
        pytest.param(
            "abort", None, {"ending": Outcome.EXPIRED}, (Outcome.EXPIRED, None), id="aborted in an expired job"
        ),
        pytest.param("abort", None, {}, (Outcome.ERROR, "aborted"), id="aborted though nobody asked"),
        pytest.param(
            "stop", None, {"ending": Outcome.CANCELLED}, (Outcome.OK, None), id="finished before the cancel reached it"
        ),
    ],
)
def test_a_row_becomes(reason, code, given, outcome):
    assert of_result(reason, code, **given) == outcome


@pytest.mark.parametrize(
    ("outcomes", "share"),
    [({}, 0.0), ({"ok": 3, "error": 1}, 0.25), ({"truncated": 1, "error": 1, "ok": 2}, 0.5), ({"refused": 2}, 0.0)],
)
def test_errors_and_truncated_rows_are_spoiled(outcomes, share):
    assert share_spoiled(outcomes) == share
