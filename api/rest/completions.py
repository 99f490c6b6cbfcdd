"""`/v1/completions`: a text that goes on, whole or as it is generated."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.rest.auth import Credentials
from api.rest.live import Answering, LiveRoute
from api.rest.live_answers import generated, takes
from api.rest.live_schemas import CompletionRequest, TextCompletion
from api.rest.replay import IdempotencyKey

router = APIRouter(tags=["inference"], route_class=LiveRoute)
_PATH = "/v1/completions"


@router.post(
    _PATH,
    response_model=TextCompletion,
    responses=generated("text_completion"),
    openapi_extra=takes(CompletionRequest),
    summary="Complete a text",
)
async def create_completion(
    request: Request,
    given: Credentials = None,  # noqa: ARG001 - for the document
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """OpenAI's completions; with `stream` as server-sent events."""
    return await Answering(request, _PATH, "cmpl-").answer(idempotency_key)
