"""The OpenAPI document: every route, every error shape, every example valid."""

import jsonschema_rs
import pytest

from api.rest.answers import EVERYWHERE, POSTED, WITH_KEY
from api.rest.app import ROUTERS

pytestmark = pytest.mark.acceptance
OPEN = {"/healthz", "/readyz"}


@pytest.fixture(scope="module")
def document(api):
    return api.http().get("/openapi.json").json()


def operations(document):
    return {(method, path): found for path, methods in document["paths"].items() for method, found in methods.items()}


def test_every_route_is_documented(document):
    routes = {
        (method.lower(), route.path.replace(":path", ""))
        for router in ROUTERS
        for route in router.routes
        for method in route.methods - {"HEAD"}
    }
    assert set(operations(document)) == routes


def test_every_operation_has_its_errors_a_summary_and_a_description(document):
    lacking = {}
    for (method, path), found in operations(document).items():
        wanted = set(EVERYWHERE if path in OPEN else WITH_KEY)
        wanted |= set(POSTED) if method == "post" else set()
        wanted |= {404} if "{" in path else set()
        missing = {str(status) for status in wanted} - set(found["responses"])
        if missing or "422" in found["responses"] or not (found.get("summary") and found.get("description")):
            lacking[method, path] = missing
    assert lacking == {}


def test_every_operation_but_health_needs_a_key(document):
    open_ones = {path for (_, path), found in operations(document).items() if not found.get("security")}
    assert open_ones == OPEN


def resolved(document, schema):
    """With the document's definitions where it looks for them."""
    return {**schema, "components": document["components"]}


def test_every_example_is_valid(document):
    checked, wrong = 0, []
    for name, schema in document["components"]["schemas"].items():
        for found in schema.get("examples", []):
            checked += 1
            wrong += [f"{name}: {e.message}" for e in validator(document, schema).iter_errors(found)]
    for (method, path), operation in operations(document).items():
        for status, answer in operation["responses"].items():
            for kind, content in answer.get("content", {}).items():
                if kind == "application/json" and "example" in content:
                    checked += 1
                    errors = validator(document, content["schema"]).iter_errors(content["example"])
                    wrong += [f"{method} {path} {status}: {e.message}" for e in errors]
    assert wrong == []
    assert checked > 100


def validator(document, schema):
    return jsonschema_rs.validator_for(resolved(document, schema))


def test_every_body_and_answer_of_ours_has_an_example(document):
    schemas = document["components"]["schemas"]
    shown = set()
    for operation in operations(document).values():
        for content in [operation.get("requestBody", {}), *operation["responses"].values()]:
            reference = content.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
            shown.add(reference.rpartition("/")[2])
    bare = {name for name in shown if name and not schemas[name].get("examples")}
    assert {name for name in bare if not name.startswith("Page_")} == {"ErrorBody", "Health", "ModelList", "PoolList"}
