"""`/v1/files`: uploads and results, streamed both ways."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from api.rest.answers import posted, read
from api.rest.auth import Caller, FilesReader, FilesWriter, Needs
from api.rest.errors import missing
from api.rest.forms import Form, Local, read_form
from api.rest.keyed import KeyedRoute
from api.rest.parts import Parts, parts_of
from api.rest.ranges import stream
from api.rest.replay import IdempotencyKey, Turn, digest_of_upload, take_turn
from api.rest.schemas import Deleted, FileBody, Page
from api.rest.shown import file_body, page_of
from api.rest.threads import in_thread
from jobs.errors import BadInput, NotFound
from jobs.filing import FileKind, StoredFile
from jobs.tenancy import Scope
from jobs.uploads import keep, place_of

router = APIRouter(prefix="/v1/files", tags=["files"], route_class=KeyedRoute)

_MOST = 10_000
_LEAST_S, _MOST_S = 3600, 31_536_000
_NAME_CHARS = 255
_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "JSONL, one request a line."},
                        "purpose": {"type": "string", "enum": ["batch"]},
                        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                        "expires_after[seconds]": {"type": "integer", "minimum": _LEAST_S, "maximum": _MOST_S},
                    },
                }
            }
        },
    }
}
_BYTES: dict[int | str, dict[str, Any]] = {
    status: {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "description": text,
    }
    for status, text in ((200, "The file's bytes."), (206, "The bytes of the range that was asked for."))
}


@router.post("", response_model=FileBody, responses=posted(), openapi_extra=_FORM, summary="Upload a file")
async def upload(
    request: Request,
    caller: Annotated[Caller, Depends(Needs(Scope.FILES_WRITE))],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Its size is bounded by the setting `max_upload_mib` alone; it is streamed to storage as it comes."""
    parts = parts_of(request)
    near = f"{parts.folder(caller.name, None)}/files/upload"
    with Local(lambda: parts.objects.scratch(near)) as local:
        form = await read_form(request.headers.get("content-type", ""), request.stream(), local)
        expires_s = _expiry(form) or parts.limits.file_expires_s
        said = (repr(sorted(form.fields.items())), form.filename or "", form.checksum)
        digest = digest_of_upload(request.url.path, *said)
        async with take_turn(parts, caller, idempotency_key, digest, "file-") as turn:
            return await in_thread(lambda: _keep(turn, form, local.path, expires_s))


def _keep(turn: Turn, form: Form, path: Path | None, expires_s: float | None) -> Response:
    parts, caller = turn.parts, turn.caller
    now = parts.store.now()
    file = StoredFile(
        id=turn.id,
        tenant=caller.name,
        purpose=FileKind.BATCH,
        filename=(form.filename or "upload")[-_NAME_CHARS:],
        uri=place_of(parts.folder(caller.name, form.size), turn.id, form.head),
        size=form.size,
        checksum=form.checksum,
        project=caller.key.project,
        creator=caller.key.id,
        created_at=now,
        expires_at=None if expires_s is None else now + expires_s,
    )
    return turn.answer(file_body(keep(file, path or form.short or b"", store=parts.store, objects=parts.objects)))


def _expiry(form: Form) -> float | None:
    """Seconds from its creation, if the form says so. Raises BadInput for whatever else is wrong with the form."""
    fields = dict(form.fields)
    if form.filename is None:
        raise BadInput(source="file", reason="the form has no file")
    if form.size == 0:
        raise BadInput(source="file", reason="the file is empty")
    purpose = fields.pop("purpose", None)
    if purpose != FileKind.BATCH:
        raise BadInput(source="purpose", reason=f"{purpose!r} is not taken here; files are for batch")
    anchor, seconds = fields.pop("expires_after[anchor]", None), fields.pop("expires_after[seconds]", None)
    if fields:
        raise BadInput(source=min(fields), reason="the form has a field of this name, which is not known")
    if anchor is None and seconds is None:
        return None
    whole = seconds if re.fullmatch(r"[0-9]{1,9}", seconds or "") else None
    if anchor != "created_at" or whole is None or not _LEAST_S <= int(whole) <= _MOST_S:
        reason = f"it needs the anchor created_at and {_LEAST_S} to {_MOST_S} seconds"
        raise BadInput(source="expires_after", reason=reason)
    return float(whole)


@router.get("", responses=read(404), summary="List files")
def list_files(
    request: Request,
    caller: FilesReader,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=_MOST)] = _MOST,
    order: Literal["asc", "desc"] = "desc",
    purpose: Literal["batch", "batch_output"] | None = None,
) -> Page[FileBody]:
    """By cursor, the newest first unless `order` says otherwise."""
    try:
        found = parts_of(request).store.stored_files(
            caller.name, purpose=purpose, after=after, limit=limit + 1, newest=order == "desc"
        )
    except NotFound:
        raise missing("file", str(after), param="after") from None
    return page_of([file_body(file) for file in found], limit, lambda file: file.id)


@router.get("/{file_id}", responses=read(404), summary="Look at a file")
def get_file(request: Request, caller: FilesReader, file_id: str) -> FileBody:
    """Without its content."""
    return file_body(_file(parts_of(request), caller, file_id))


@router.get(
    "/{file_id}/content",
    response_class=Response,
    responses={**read(404, 416), **_BYTES},
    summary="A file's content",
)
def content(
    request: Request,
    caller: FilesReader,
    file_id: str,
    range_: Annotated[
        str | None, Header(alias="Range", description="bytes=FIRST-LAST: go on where it broke off.")
    ] = None,
    if_range: Annotated[str | None, Header(alias="If-Range")] = None,
) -> Response:
    """The whole, or the one range that is asked for; its ETag is the file's checksum."""
    parts = parts_of(request)
    file = _file(parts, caller, file_id)
    tag = f'"{file.checksum}"'
    asked = range_ if if_range in {None, tag} else None
    return stream(parts.objects.open(file.uri), file.size, asked, {"etag": tag}, "application/octet-stream")


@router.delete("/{file_id}", responses=read(404, 409), summary="Delete a file")
def delete_file(request: Request, caller: FilesWriter, file_id: str) -> Deleted:
    """Refused while a batch that is not at its end reads it."""
    parts = parts_of(request)
    try:
        parts.store.delete_file(file_id, caller.name)
    except NotFound:
        raise missing("file", file_id) from None
    return Deleted(id=file_id)


def _file(parts: Parts, caller: Caller, file_id: str) -> StoredFile:
    try:
        return parts.store.file(file_id, caller.name)
    except NotFound:
        raise missing("file", file_id) from None
