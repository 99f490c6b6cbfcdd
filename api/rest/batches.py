"""`/v1/batches`: OpenAI's Batch API."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic import ConfigDict, Field

from api.rest.answers import posted, read
from api.rest.auth import Caller, JobsReader
from api.rest.errors import clean, missing
from api.rest.hook_schemas import WebhookAsk
from api.rest.keyed import KeyedRoute
from api.rest.parts import Parts, parts_of
from api.rest.replay import Turn, Turns
from api.rest.schemas import FILE_EXAMPLE, Ask, BatchBody, Metadata, Page
from api.rest.shown import batch_body, page_of
from api.rest.webhooks import webhook_for
from jobs.batching import cancel_batch
from jobs.errors import BadInput, NotFound
from jobs.filing import ENDPOINTS, WINDOW, Batch, BatchStatus, FileKind, tokens_of, window_s
from jobs.tenancy import Scope

router = APIRouter(prefix="/v1/batches", tags=["batches"], route_class=KeyedRoute)

_EXAMPLE = {
    "input_file_id": FILE_EXAMPLE["id"],
    "endpoint": "/v1/chat/completions",
    "completion_window": "24h",
    "metadata": {"customer": "catalog"},
}


class ExpiresAfter(Ask):
    """How long the files of the results are kept."""

    model_config = ConfigDict(extra="forbid")

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=31_536_000)]


class BatchRequest(Ask):
    """What a batch is made of. completion_window: `24h`, or any number of m, h or d."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    input_file_id: Annotated[str, Field(min_length=1, max_length=128)]
    endpoint: Annotated[str, Field(max_length=64, json_schema_extra={"enum": [*ENDPOINTS]})]
    completion_window: Annotated[str, Field(max_length=16, json_schema_extra={"pattern": WINDOW})]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
    webhook: WebhookAsk | None = None


@router.post("", response_model=BatchBody, responses=posted(404, 429), summary="Create a batch")
def create(
    body: BatchRequest,
    turn: Annotated[Turn, Depends(Turns("batch_", Scope.JOBS_WRITE))],
    order: Annotated[
        Literal["none", "input"],
        Header(alias="x-nightmill-order", description="Order of the result lines: none (OpenAI's promise), or input."),
    ] = "none",
) -> Response:
    """Its input is checked afterwards: what is wrong with a line makes the batch `failed`, with the line's number."""
    parts, caller = turn.parts, turn.caller
    if body.endpoint not in ENDPOINTS:
        raise BadInput(source="endpoint", reason=f"{body.endpoint} is none of {', '.join(ENDPOINTS)}")
    window = window_s(body.completion_window)
    try:
        file = parts.store.file(body.input_file_id, caller.name)
    except NotFound:
        raise missing("file", body.input_file_id, param="input_file_id") from None
    if file.purpose is not FileKind.BATCH:
        raise BadInput(source="input_file_id", reason=f"the file's purpose is {file.purpose}, not batch")
    now = parts.store.now()
    batch = parts.store.add_batch(
        Batch(
            id=turn.id,
            tenant=caller.name,
            input_file=file.id,
            endpoint=body.endpoint,
            window=body.completion_window,
            project=caller.key.project,
            creator=caller.key.id,
            metadata=body.metadata or {},
            order=order,
            output_expires_s=body.output_expires_after.seconds if body.output_expires_after else None,
            times={str(BatchStatus.VALIDATING): now},
            enqueued_tokens=tokens_of(file.size),
            webhook=webhook_for(turn, body.webhook),
            created_at=now,
            expires_at=now + window,
        )
    )
    parts.wake()
    return turn.answer(_shown(parts, batch))


@router.get("", responses=read(404), summary="List batches")
def list_batches(
    request: Request,
    caller: JobsReader,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Page[BatchBody]:
    """By cursor, the newest first."""
    parts = parts_of(request)
    try:
        found = parts.store.batches(caller.name, after=after, limit=limit + 1)
    except NotFound:
        raise missing("batch", str(after), param="after") from None
    shown = [_shown(parts, batch) for batch in found[:limit]]
    page = page_of(shown, limit, lambda batch: batch.id)
    return page.model_copy(update={"has_more": len(found) > limit})


@router.get("/{batch_id}", responses=read(404), summary="Look at a batch")
def get_batch(request: Request, caller: JobsReader, batch_id: str) -> BatchBody:
    """Its counts trail the work by a fraction of a second."""
    parts = parts_of(request)
    return _shown(parts, _batch(parts, caller, batch_id))


@router.post("/{batch_id}/cancel", response_model=BatchBody, responses=posted(404), summary="Cancel a batch")
def cancel(batch_id: str, turn: Annotated[Turn, Depends(Turns("cancel-", Scope.JOBS_WRITE))]) -> Response:
    """Finished rows are in the output file, all others in the error file: together always the input."""
    parts = turn.parts
    batch = cancel_batch(parts.store, _batch(parts, turn.caller, batch_id))
    parts.wake()
    return turn.answer(_shown(parts, batch))


def _batch(parts: Parts, caller: Caller, batch_id: str) -> Batch:
    try:
        return parts.store.batch(batch_id, caller.name)
    except NotFound:
        raise missing("batch", batch_id) from None


def _shown(parts: Parts, batch: Batch) -> BatchBody:
    job = None if batch.job is None else parts.store.job(batch.job)
    return batch_body(batch, job, lambda text: clean(text, parts.hidden))
