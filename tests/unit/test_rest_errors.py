"""What an answer says of an error, and what it does not."""

import json

import pytest

from api.rest.errors import answer_to, clean
from jobs.errors import (
    BadInput,
    Conflict,
    DatabaseUnavailable,
    KeyRefused,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    StorageCorrupt,
    WrongState,
)

pytestmark = pytest.mark.unit
HIDDEN = ("file:///srv/mill/objects", "/srv/mill")
QUOTA = QuotaExceeded(tenant="a", limit=1, enqueued=1, asked=1)


@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (NotFound(kind="batch", name="x", hint=""), 404, "not_found", None),
        (KeyRefused(reason="x"), 401, "invalid_api_key", None),
        (NotAllowed(reason="x"), 403, "not_allowed", None),
        (QUOTA, 429, "token_limit_exceeded", None),
        (BadInput(source="--max-tokens", reason="x"), 400, "bad_input", "max_tokens"),
        (BadInput(source="s3://b/k", reason="x"), 400, "bad_input", None),
        (WrongState(job="j", state="s", action="a", needed="n"), 409, "wrong_state", None),
        (Conflict(reason="x"), 409, "conflict", None),
        (DatabaseUnavailable(where="/srv/mill/db", reason="x"), 503, "database_unavailable", None),
        (StorageCorrupt(uri="/srv/mill/x", reason="x"), 500, "broken", None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_branch_of_an_error_is_its_status(error, status, code, param):
    answer = answer_to(error, HIDDEN)
    body = json.loads(answer.body)["error"]
    assert (answer.status_code, body["code"], body["param"], "/srv/mill" in body["message"]) == (
        status,
        code,
        param,
        False,
    )


def test_places_of_the_service_are_taken_out_and_options_become_fields():
    text = "file:///srv/mill/objects/tenants/a/files/x.jsonl: give --max-tokens, not /srv/mill/y; s3://mine/z is fine."
    assert (
        clean(text, HIDDEN) == "the service's storage: give max_tokens, not the service's storage; s3://mine/z is fine."
    )
