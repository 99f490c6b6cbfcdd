"""Requests made from our own OpenAPI document, fitting ones and others: whatever comes back is in that document, and
none of it is a failure of ours. `REST_EXAMPLES=200` looks longer; the requests are the same each time.
"""

import os
from types import SimpleNamespace

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection

from api.rest.app import make_app
from jobs.tenancy import Role, Scope, digest_of
from tests.support.api import some_lines, until
from tests.support.hooks import a_webhook

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(600),
    # The service in this process waits a random while now and then; the strategies are not what did it.
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
]

EXAMPLES = int(os.environ.get("REST_EXAMPLES", "6"))
CONFIG = {
    "seed": 7,
    "generation": {"max-examples": EXAMPLES, "deterministic": True, "database": "none"},
    "checks": {
        "positive_data_acceptance": {"enabled": False},  # fields that do not go together are refused
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", 503]},  # a webhook's host that is not found
    },
}
SCHEMA = schemathesis.openapi.from_dict(
    make_app(SimpleNamespace(hidden=(), limits=None)).openapi(), config=SchemathesisConfig.from_dict(CONFIG)
)
NAMES = {
    "file_id": "file",
    "batch_id": "batch",
    "job_id": "job",
    "model": "model",
    "webhook_id": "hook",
    "key_id": "key",
}
load_all_checks()


@pytest.fixture(scope="module")
def there(api):
    """Names of things that are there, by kind, and the headers of who may do all with them."""
    key = api.key("documented", role=Role.ADMIN, scopes=frozenset(Scope))
    client = api.openai(key)
    file = client.files.create(file=("in.jsonl", some_lines(3)), purpose="batch")
    asked = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = client.batches.create(input_file_id=file.id, **asked)
    until(lambda: client.batches.retrieve(batch.id).status == "completed", "the end of the batch")
    hook = api.home.store.add_webhook(a_webhook("we_documented", tenant="documented"), "test")
    other = api.home.store.key_by_digest(digest_of(api.key("documented")))[0]
    return {
        "file": file.id,
        "batch": batch.id,
        "job": api.home.store.batch(batch.id, "documented").job,
        "model": "fake",
        "hook": hook.id,
        "key": other.id,
        "headers": {"Authorization": f"Bearer {key}"},
    }


def half(value):
    """Of all values, the same ones each time."""
    return len(str(value)) % 2 == 0


def name_what_is_there(case, there):
    """In half of the requests, so that answers to good ones are seen too; what is bad on purpose stays bad."""
    if fits(case, ParameterLocation.PATH):
        for name, value in (case.path_parameters or {}).items():
            if name in NAMES and half(value):
                case.path_parameters[name] = there[NAMES[name]]
    if fits(case, ParameterLocation.BODY) and isinstance(case.body, dict) and half(case.body.get("input_file_id", "x")):
        case.body["input_file_id"] = there["file"]


def fits(case, location):
    """Whether this part of the request is as the document has it."""
    found = case.meta.components.get(location)
    return found is not None and found.mode.is_positive


def drop_what_is_not_sent(case):
    """A query parameter with no value at all is taken for a bad one, and nobody ever sees it."""
    case.query = {name: value for name, value in (case.query or {}).items() if value != []}


def only_its_key_is_bad(case):
    """A good one is sent in its place: whoever lets the request in is right."""
    changes = getattr(case.meta.phase.data, "mutations", ())
    headers = {change.parameter for change in changes if change.parameter_location is ParameterLocation.HEADER}
    bad = {location for location, part in case.meta.components.items() if part.mode.is_negative}
    return (bad, headers) == ({ParameterLocation.HEADER}, {"Authorization"})


@SCHEMA.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_a_documented_one(case, api, there):
    name_what_is_there(case, there)
    drop_what_is_not_sent(case)
    skipped = [negative_data_rejection] if only_its_key_is_bad(case) else []
    case.call_and_validate(base_url=api.url, headers=there["headers"], excluded_checks=skipped)
