"""`/v1/jobs/{id}/events`: server-sent events of a job's state, progress and spend, until its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from api.rest.answers import Answers, read
from api.rest.auth import JobsReader, job_of
from api.rest.errors import clean
from api.rest.job_schemas import JobPath
from api.rest.keyed import KeyedRoute
from api.rest.parts import Parts, parts_of
from api.rest.shown import job_body
from jobs.errors import NightmillError
from jobs.model import Job

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"], route_class=KeyedRoute)

_QUIET_S = 15.0
_EXAMPLE = 'id: 3-120\nevent: progress\ndata: {"id": "job-06c", "state": "running"}\n\n'
_STREAM: Answers = {
    200: {
        "description": "`state` when it changes, `progress` when rows or spend do, `end` last; `data` is the job.",
        "content": {"text/event-stream": {"example": _EXAMPLE}},
    }
}


@router.get("/events", response_class=StreamingResponse, responses={**read(404), **_STREAM}, summary="Watch a job")
async def events(request: Request, caller: JobsReader, job_id: JobPath) -> StreamingResponse:
    """The first event is how it stands now: who lost the connection misses nothing by asking again."""
    parts = parts_of(request)
    job = await run_in_threadpool(job_of, parts, caller, job_id)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_events(parts, job), headers=headers, media_type="text/event-stream")


async def _events(parts: Parts, job: Job) -> AsyncIterator[str]:
    told: Job | None = None
    told_s = parts.clock.monotonic()
    while not parts.closing.is_set():
        if (name := _event(told, job)) is not None:
            told, told_s = job, parts.clock.monotonic()
            yield _text(parts, name, job)
            if job.state.terminal:
                return
        elif parts.clock.monotonic() - told_s >= _QUIET_S:
            told_s = parts.clock.monotonic()
            yield ": still here\n\n"  # so that nothing between us takes the connection for dead
        await asyncio.sleep(parts.limits.look_s)
        try:
            job = await run_in_threadpool(parts.store.job, job.id)
        except NightmillError:  # a database that is away for a moment; the client asks again if this stream ends
            continue


def _event(told: Job | None, now: Job) -> str | None:
    if now.state.terminal:
        return "end"
    if told is None or told.state is not now.state:
        return "state"
    return "progress" if (told.usage.rows, told.amount_pico) != (now.usage.rows, now.amount_pico) else None


def _text(parts: Parts, name: str, job: Job) -> str:
    shown = job_body(job, lambda text: clean(text, parts.hidden), inside=parts.hidden)
    return f"id: {job.version}-{job.usage.rows}\nevent: {name}\ndata: {shown.model_dump_json()}\n\n"
