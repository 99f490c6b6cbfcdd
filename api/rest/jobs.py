"""`/v1/jobs`: Nightmill's own jobs, as the command line has them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from api.rest.answers import posted, read
from api.rest.asking import asked, check_again, check_output, rows_uri, with_rows
from api.rest.auth import JobsReader, job_of
from api.rest.errors import clean, missing
from api.rest.job_schemas import JobBody, JobPath, JobRequest, PriorityRequest, QuoteBody, RetryRequest
from api.rest.keyed import KeyedRoute
from api.rest.parts import Parts, parts_of
from api.rest.replay import Turn, Turns
from api.rest.schemas import Page
from api.rest.shown import job_body, page_of, quote_body
from api.rest.webhooks import webhook_for
from jobs.batching import cancel_job
from jobs.ending import RESUMED
from jobs.errors import Conflict, NotFound, WrongState
from jobs.model import Job, JobState
from jobs.pools import is_private, pool_named
from jobs.request import sampling_of
from jobs.submit import check, submit_to_pool
from jobs.tenancy import Scope

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=KeyedRoute)

Act = Annotated[Turn, Depends(Turns("act-", Scope.JOBS_WRITE))]
_RUNNING = frozenset({JobState.RUNNING})
_PAUSED = frozenset({JobState.PAUSED})


class NotInAPool(Conflict):
    """Job {job} is run by a command of its own and not by a pool; {action} it there."""

    code = "not_in_a_pool"


@router.post("", response_model=JobBody, responses=posted(404, 429), summary="Create a job")
def create(body: JobRequest, turn: Annotated[Turn, Depends(Turns("rows-", Scope.JOBS_WRITE))]) -> Response:
    """Everything is checked and frozen before it is answered; nothing of the input is generated yet."""
    parts = turn.parts
    with with_rows(parts, turn.caller, body, turn.id):
        request = asked(parts, turn.caller, body, turn.id)
        job = submit_to_pool(
            request.evolve(webhook=webhook_for(turn, body.webhook)),
            pools=parts.pools(),
            intake=parts.intake,
            models=parts.models,
            store=parts.store,
            ids=parts.ids,
        )
    parts.wake()
    return turn.answer(_shown(parts, job))


@router.post("/quote", response_model=QuoteBody, responses=posted(404), summary="What would it cost?")
def quote(body: JobRequest, turn: Annotated[Turn, Depends(Turns("quote-", Scope.JOBS_READ))]) -> Response:
    """Takes what a create takes, samples the input, and makes nothing."""
    parts = turn.parts
    try:
        request = asked(parts, turn.caller, body, turn.id)
        pool = pool_named(request.pool or "", parts.pools())
        checked = check(request, intake=parts.intake, models=parts.models, store=parts.store, pool=pool)
        return turn.answer(quote_body(parts.quote(checked)))
    finally:
        if body.rows is not None:
            parts.objects.delete(rows_uri(parts, turn.caller, turn.id))


@router.get("", responses=read(404), summary="List jobs")
def list_jobs(
    request: Request,
    caller: JobsReader,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Page[JobBody]:
    """By cursor, the newest first; those of batches and of the command line are among them."""
    parts = parts_of(request)
    try:
        found = parts.store.jobs(tenant=caller.name, limit=limit + 1, after=after)
    except NotFound:
        raise missing("job", str(after), param="after") from None
    return page_of([_shown(parts, job) for job in found], limit, lambda job: job.id)


@router.get(
    "/{job_id}",
    response_model=JobBody,
    responses={**read(404), 304: {"description": "It is as the ETag that was sent."}},
    summary="Look at a job",
)
def get_job(
    request: Request, caller: JobsReader, job_id: JobPath, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """Its totals trail the commits by a fraction of a second; its ETag changes with state and totals."""
    parts = parts_of(request)
    job = job_of(parts, caller, job_id)
    tag = f'"{job.version}-{job.usage.rows}-{job.priority}"'
    if if_none_match is not None and tag in (one.strip().removeprefix("W/") for one in if_none_match.split(",")):
        return Response(status_code=304, headers={"etag": tag})
    return Response(_shown(parts, job).model_dump_json(), headers={"etag": tag}, media_type="application/json")


@router.post("/{job_id}/cancel", response_model=JobBody, responses=posted(404), summary="Cancel a job")
def cancel(job_id: JobPath, turn: Act) -> Response:
    """Finished rows stay; every other row becomes a `cancelled` row of the results."""
    job = _job(turn, job_id)
    if job.state.terminal and job.state is not JobState.CANCELLED:
        raise WrongState(job=job.id, state=job.state, action="cancel", needed="running or paused")
    return _done(turn, cancel_job(turn.parts.store, job))


@router.post("/{job_id}/pause", response_model=JobBody, responses=posted(404), summary="Pause a job")
def pause(job_id: JobPath, turn: Act) -> Response:
    """Finished rows are committed; `resume` goes on."""
    job = _job(turn, job_id)
    if job.state is not JobState.PAUSED:
        reason = "paused through the API"
        job = turn.parts.store.set_state(job.id, expect=_RUNNING, to=JobState.PAUSED, reason=reason)
    return _done(turn, job)


@router.post("/{job_id}/resume", response_model=JobBody, responses=posted(404), summary="Go on with a paused job")
def resume(job_id: JobPath, turn: Act) -> Response:
    """Refused where the input or the model is no longer what it was."""
    parts, job = turn.parts, _job(turn, job_id)
    if is_private(job.pool):
        raise NotInAPool(job=job.id, action="resume")
    if job.state is not JobState.RUNNING:
        parts.intake.check_unchanged(job, parts.store.files(job.id), parts.models.resolve(job.spec.model))
        reason = f"{RESUMED} through the API"
        job = parts.store.set_state(job.id, expect=_PAUSED, to=JobState.RUNNING, reason=reason)
    return _done(turn, job)


@router.post("/{job_id}/priority", response_model=JobBody, responses=posted(404), summary="Change a job's priority")
def priority(job_id: JobPath, body: PriorityRequest, turn: Act) -> Response:
    """What was released with the old one is taken back and released anew."""
    return _done(turn, turn.parts.store.set_priority(_job(turn, job_id).id, body.priority))


@router.post("/{job_id}/retry", response_model=JobBody, responses=posted(404), summary="Do some rows again")
def retry(
    job_id: JobPath, body: RetryRequest, turn: Annotated[Turn, Depends(Turns("job-", Scope.JOBS_WRITE))]
) -> Response:
    """A child job of exactly the rows of a finished job that had these outcomes."""
    parts, parent = turn.parts, _job(turn, job_id)
    if is_private(parent.pool):
        raise NotInAPool(job=parent.id, action="retry")
    try:
        child = job_of(parts, turn.caller, turn.id)  # whoever died after this had made it
    except NotFound:
        check_again(parts, turn.caller, parent, body.output)
        child = parts.retry(
            parent,
            outcomes=",".join(body.outcomes),
            sampling=sampling_of(body.model_dump()),
            output=check_output(parts, turn.caller, body.output),
            child_id=turn.id,
        )
    return _done(turn, child)


def _job(turn: Turn, job_id: str) -> Job:
    return job_of(turn.parts, turn.caller, job_id)


def _done(turn: Turn, job: Job) -> Response:
    turn.parts.wake()
    return turn.answer(_shown(turn.parts, job))


def _shown(parts: Parts, job: Job) -> JobBody:
    return job_body(job, lambda text: clean(text, parts.hidden), inside=parts.hidden)
