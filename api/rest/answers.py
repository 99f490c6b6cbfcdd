"""Which answers a route documents: every error that it may give, with an example of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.rest.errors import body_of

Answers = dict[int | str, dict[str, Any]]

_BAD = "invalid_request_error"
_EXAMPLES: Mapping[int, tuple[str, Mapping[str, Any]]] = {
    400: (
        "The request cannot be taken as it is.",
        body_of(
            "completion_window: '1 day' is no window: write 24h, 30m or 2d.",
            kind=_BAD,
            code="bad_input",
            param="completion_window",
        ),
    ),
    401: (
        "There is no good API key.",
        body_of("The API key is not good: it is not known.", kind="authentication_error", code="invalid_api_key"),
    ),
    403: (
        "The key may not be used for this.",
        body_of(
            "This API key may not do that: it lacks the scope jobs.write.", kind="permission_error", code="not_allowed"
        ),
    ),
    404: (
        "There is nothing of that name inside the tenant.",
        body_of(
            "There is no batch named batch_06c. It may have been deleted, or the key may be another tenant's.",
            kind=_BAD,
            code="not_found",
        ),
    ),
    408: (
        "The client was silent for too long.",
        body_of("Nothing of the body came for 30 s.", kind=_BAD, code="timeout"),
    ),
    409: (
        "Something else stands against it.",
        body_of(
            "Batch batch_06c is completed already; only one that is not at its end can be cancelled.",
            kind=_BAD,
            code="batch_ended",
        ),
    ),
    413: (
        "The body is too large.",
        body_of("The body is larger than the 16,777,216 bytes that this service takes.", kind=_BAD, code="too_large"),
    ),
    416: (
        "The range lies outside the file.",
        body_of("The range lies outside the file.", kind=_BAD, code="bad_range"),
    ),
    429: (
        "A quota of the tenant is used up.",
        body_of(
            "Tenant acme may have 1000000 tokens enqueued and has 990000; this asks for 20000 more. Try later.",
            kind="rate_limit_error",
            code="token_limit_exceeded",
        ),
    ),
    431: (
        "The address or the headers are too long.",
        body_of("Address and headers are longer than 32,768 bytes.", kind=_BAD, code="too_large"),
    ),
    500: (
        "The service failed.",
        body_of("The service failed at this request.", kind="server_error", code="broken"),
    ),
    503: (
        "A backend is away, or the answer took too long; `retry-after` says when to ask again.",
        body_of("A backend of the service does not answer at the moment.", kind="server_error", code="unavailable"),
    ),
}
REF = "#/components/schemas/{model}"
"""Said here, and not by a model: FastAPI would document errors with the media type of what the route answers."""
EVERYWHERE = (431, 500, 503)
WITH_KEY = (400, 401, 403, *EVERYWHERE)
POSTED = (408, 409, 413)


def answers(*statuses: int, ok: Mapping[int | str, dict[str, Any]] | None = None) -> Answers:
    """For a route's `responses`. ok: documentation of what it answers when all is well."""
    found: Answers = {}
    for status in sorted({*statuses}):
        description, example = _EXAMPLES[status]
        content = {"application/json": {"schema": {"$ref": REF.format(model="ErrorBody")}, "example": dict(example)}}
        found[status] = {"description": description, "content": content}
    return {**found, **(ok or {})}


def read(*more: int) -> Answers:
    """Of a GET or DELETE with a key."""
    return answers(*WITH_KEY, *more)


def posted(*more: int) -> Answers:
    """Of a POST with a key."""
    return answers(*WITH_KEY, *POSTED, *more)
