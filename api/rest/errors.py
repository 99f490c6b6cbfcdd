"""Every error in OpenAI's body, with our stable codes; and nothing in it that a caller should not learn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.rest.rated import rate_headers, retry_headers
from jobs.errors import (
    BadInput,
    Conflict,
    Interrupted,
    KeyRefused,
    NightmillError,
    NotAllowed,
    NotFound,
    Overloaded,
    QuotaExceeded,
    RateLimited,
    Refused,
    Unavailable,
    Unserved,
    WrongState,
)
from jobs.ports.limiting import Standing

log = structlog.get_logger()

RETRY_AFTER_S = 5
_SHOWN_CHARS = 200
_AWAY = "A backend of the service does not answer at the moment. Try again."
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
"""What the command line calls an option, a request's body calls a field."""
OURS = "The service failed at this request. The request id helps the operator to find out why."
_CODES = {404: "not_found", 405: "method_not_allowed", 408: "timeout", 413: "too_large", 431: "too_large"}
_STATUS: tuple[tuple[type[NightmillError], int, str], ...] = (
    (NotFound, 404, "invalid_request_error"),
    (KeyRefused, 401, "authentication_error"),
    (NotAllowed, 403, "permission_error"),
    (QuotaExceeded, 429, "rate_limit_error"),
    (WrongState, 409, "invalid_request_error"),
    (Refused, 400, "invalid_request_error"),
    (Conflict, 409, "invalid_request_error"),
    (Overloaded, 429, "rate_limit_error"),
    (Unavailable, 503, "server_error"),
    (NightmillError, 500, "server_error"),
)
"""The first that fits."""
_TOLD = (Overloaded, Unserved, Interrupted)
"""Faults of ours of which a caller may know what they are."""


class Answered(Exception):
    """The answer to this request is known already. A dependency cannot answer, but it can raise."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def body_of(message: str, *, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    """OpenAI's error body."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def clean(text: str, hidden: Sequence[str]) -> str:
    """Without the places that nobody outside shall learn of."""
    text = _OPTION.sub(lambda found: found[1].replace("-", "_"), text)
    for place in sorted(hidden, key=len, reverse=True):
        text = re.sub(re.escape(place) + r"[^\s;,)'\"]*(?<![:.])", "the service's storage", text)
    return text


def answer_to(error: NightmillError, hidden: Sequence[str], standing: Standing | None = None) -> JSONResponse:
    """standing: of the caller's limits, where they were asked."""
    status, content = error_content(error, hidden)
    headers = rate_headers(error.data.get("standing", standing))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status in {429, 503}:
        headers |= _retry(error)
    return JSONResponse(content, status, headers=headers)


def _retry(error: NightmillError) -> dict[str, str]:
    """When to ask again, or that it is no use, as OpenAI's clients understand it."""
    after_s = error.data.get("exactly_s", error.data.get("retry_after_s"))
    if after_s is not None:
        return retry_headers(after_s)
    never = isinstance(error, RateLimited)
    return {"x-should-retry": "false"} if never else {"retry-after": str(RETRY_AFTER_S)}


def error_content(error: NightmillError, hidden: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Status by branch, and the body; what is ours to mend tells nothing of how."""
    status, kind = next((status, kind) for cls, status, kind in _STATUS if isinstance(error, cls))
    quiet = None if isinstance(error, _TOLD) else {503: _AWAY, 500: OURS}.get(status)
    message = quiet or clean(_words(error), hidden)
    code = error.code if status != 500 else "broken"
    return status, body_of(message, kind=kind, code=code, param=_param(error))


def _words(error: NightmillError) -> str:
    """Of an object only its kind: its name is a place."""
    if isinstance(error, NotFound) and error.data.get("kind") == "object":
        return "What this needs is not there any more."
    return error.sentence


def _param(error: NightmillError) -> str | None:
    if "param" in error.data:
        return str(error.data["param"])
    source = str(error.data.get("source", "")) if isinstance(error, BadInput) else ""
    field = source.removeprefix("--").replace("-", "_")
    return field if re.fullmatch(r"[a-z_.]+", field) else None


def missing(kind: str, name: str, *, param: str | None = None) -> NotFound:
    """The same words for what never was and for what is another tenant's."""
    data = {} if param is None else {"param": param}
    return NotFound(kind=kind, name=name, hint="It may have been deleted, or the key may be another tenant's.", **data)


def _nothing_at(request: Request) -> str:
    """Whoever left out /v1 is told so."""
    path = request.url.path
    below = {**request.scope, "path": f"/v1{path}"}
    if any(route.matches(below)[0] is not Match.NONE for route in request.app.routes):
        return f"There is nothing at {path}, but at /v1{path}: a client's base_url ends in /v1."
    return f"There is nothing at {path if len(path) <= _SHOWN_CHARS else 'this address'}; see /openapi.json."


def _methods(request: Request) -> str:
    """Of all routes at this address; Starlette itself names those of the first."""
    routes = request.app.routes
    address = next(route.path for route in routes if route.matches(request.scope)[0] is Match.PARTIAL)
    return ", ".join(sorted({method for route in routes if route.path == address for method in route.methods}))


def handle_errors(app: FastAPI, hidden: Sequence[str]) -> None:
    """Give the app its handlers."""

    @app.exception_handler(NightmillError)
    async def known(request: Request, error: NightmillError) -> JSONResponse:
        if not isinstance(error, (Refused, Conflict, Overloaded)):
            log.error("request_failed", reason=error.sentence, exc_info=error, silent=True)
        return answer_to(error, hidden, getattr(request.state, "standing", None))

    @app.exception_handler(RequestValidationError)
    async def unfit(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        names = [] if first["type"] == "json_invalid" else first["loc"][1:]
        param = ".".join(str(part) for part in names) or str(first["loc"][0])
        message = f"{param}: {first['msg']}."
        return JSONResponse(body_of(message, kind="invalid_request_error", code="bad_input", param=param), 400)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        code = _CODES.get(error.status_code, "refused")
        message = _nothing_at(request) if error.status_code == 404 else str(error.detail)
        content = body_of(message, kind="invalid_request_error", code=code)
        headers = {"allow": _methods(request)} if error.status_code == 405 else error.headers
        return JSONResponse(content, error.status_code, headers=headers)

    @app.exception_handler(Answered)
    async def known_answer(_: Request, answer: Answered) -> Response:
        return Response(answer.body, answer.status, {"idempotent-replayed": "true"}, media_type="application/json")
