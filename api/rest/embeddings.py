"""`/v1/embeddings`: vectors of texts."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.rest.auth import Credentials
from api.rest.live import Answering, LiveRoute
from api.rest.live_answers import computed, takes
from api.rest.live_schemas import EmbeddingList, EmbeddingRequest
from api.rest.replay import IdempotencyKey

router = APIRouter(tags=["inference"], route_class=LiveRoute)
_PATH = "/v1/embeddings"


@router.post(
    _PATH,
    response_model=EmbeddingList,
    responses=computed(),
    openapi_extra=takes(EmbeddingRequest),
    summary="Embed texts",
)
async def create_embeddings(
    request: Request,
    given: Credentials = None,  # noqa: ARG001 - for the document
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """OpenAI's embeddings. An input that is too long is an error that names it."""
    return await Answering(request, _PATH, "embd-").answer(idempotency_key)
