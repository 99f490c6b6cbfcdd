"""`/v1/jobs/{id}/…`: rows by outcome, the Parquet parts by link, and OpenAI's lines as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from api.rest.answers import read
from api.rest.auth import JobsReader, job_of
from api.rest.errors import missing
from api.rest.job_schemas import JobPath, ManifestBody, PartBody
from api.rest.keyed import KeyedRoute
from api.rest.parts import Parts, parts_of
from api.rest.ranges import OctetStream, ranged, stream
from jobs.errors import WrongState
from jobs.model import Job, Outcome

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"], route_class=KeyedRoute)

_LINES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/jsonl": {"schema": {"type": "string"}}}}
    for status, text in ((200, "One line a row."), (206, "The bytes of the range that was asked for."))
}
_ROWS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows as the results have them.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["object", "data"],
                    "properties": {
                        "object": {"type": "string", "enum": ["list"]},
                        "data": {"type": "array", "items": {"type": "object"}},
                    },
                },
                "example": {"object": "list", "data": [{"row": 7, "outcome": "error", "error_code": "engine_error"}]},
            }
        },
    }
}
Range = Annotated[str | None, Header(alias="Range", description="bytes=FIRST-LAST: go on where it broke off.")]
_FLUSH = 1 << 16


@router.get("/rows", response_class=Response, responses={**read(404), **_ROWS}, summary="Look at rows")
def rows(
    request: Request,
    caller: JobsReader,
    job_id: JobPath,
    outcome: Annotated[list[Outcome] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The first rows, or the first with these outcomes; works while the job runs."""
    parts = parts_of(request)
    job = job_of(parts, caller, job_id)
    wanted = None if outcome is None else [str(one) for one in outcome]
    found = list(parts.results.rows(job, outcomes=wanted, limit=limit))
    return Response(orjson.dumps({"object": "list", "data": found}, default=str), media_type="application/json")


@router.get("/results", responses=read(404, 409), summary="The results' files")
def manifest(request: Request, caller: JobsReader, job_id: JobPath) -> ManifestBody:
    """A link to each Parquet part: to the object store where it gives such links, else to this API."""
    parts = parts_of(request)
    job = job_of(parts, caller, job_id)
    found = _manifest(parts, job)
    return ManifestBody(
        job=job.id,
        state=found["state"],
        rows=found["rows"],
        columns=found["columns"],
        parts=[_part(parts, job, one) for one in found["parts"]],
    )


@router.get(
    "/results/{name}", response_class=OctetStream, responses=read(404, 409, 416), summary="A file of the results"
)
def part(request: Request, caller: JobsReader, job_id: JobPath, name: str, range_: Range = None) -> Response:
    """A Parquet part that the manifest names."""
    parts = parts_of(request)
    job = job_of(parts, caller, job_id)
    named = [one for one in _manifest(parts, job)["parts"] if one["name"] == name]
    if not named:
        raise missing("file of the results", name)
    file = parts.objects.open(f"{job.folder}/{name}")
    tag = f'"{named[0]["checksum"]}"'
    return stream(file, named[0]["size"], range_, {"etag": tag}, "application/vnd.apache.parquet")


@router.get("/lines", response_class=Response, responses={**read(404, 416), **_LINES}, summary="Results as JSONL")
def lines(request: Request, caller: JobsReader, job_id: JobPath, range_: Range = None) -> Response:
    """OpenAI's output and error lines together. While the job runs: what is committed, and no ranges."""
    parts = parts_of(request)
    job = job_of(parts, caller, job_id)
    if range_ is None or not job.state.terminal:
        headers = {"accept-ranges": "bytes" if job.state.terminal else "none"}
        return StreamingResponse(_chunks(parts.results.jsonl(job)), headers=headers, media_type="application/jsonl")
    return ranged(_chunks(parts.results.jsonl(job)), _size(parts, job.id, job.version), range_, "application/jsonl")


@lru_cache(maxsize=256)
def _size(parts: Parts, job_id: str, _version: int) -> int:
    """Bytes of all lines of a finished job: they are made anew each time, and always the same."""
    return sum(len(line) for line in parts.results.jsonl(parts.store.job(job_id)))


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines put together: each chunk takes a turn of a thread."""
    held = bytearray()
    for line in lines:
        held += line
        if len(held) >= _FLUSH:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _manifest(parts: Parts, job: Job) -> Any:
    found = parts.manifest(job) if job.state.terminal else None
    if found is None:
        raise WrongState(job=job.id, state=job.state, action="its manifest", needed="at its end")
    return found


def _part(parts: Parts, job: Job, one: Any) -> PartBody:
    link = parts.link(f"{job.folder}/{one['name']}") or f"/v1/jobs/{job.id}/results/{one['name']}"
    return PartBody(**{name: one[name] for name in PartBody.model_fields if name != "url"}, url=link)
