"""`/v1/chat/completions`: an answer in a chat, whole or as it is generated."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.rest.auth import Credentials
from api.rest.live import Answering, LiveRoute
from api.rest.live_answers import generated, takes
from api.rest.live_schemas import ChatCompletion, ChatRequest
from api.rest.replay import IdempotencyKey

router = APIRouter(tags=["inference"], route_class=LiveRoute)
_PATH = "/v1/chat/completions"


@router.post(
    _PATH,
    response_model=ChatCompletion,
    responses=generated("chat.completion.chunk"),
    openapi_extra=takes(ChatRequest),
    summary="Chat",
)
async def create_chat_completion(
    request: Request,
    given: Credentials = None,  # noqa: ARG001 - for the document
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """OpenAI's chat completions; with `stream` as server-sent events."""
    return await Answering(request, _PATH, "chatcmpl-").answer(idempotency_key)
