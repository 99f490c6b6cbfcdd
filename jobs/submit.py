"""Submitting a job: everything is checked and frozen before the record is written; nothing starts here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobs.errors import BadInput, NoPrice
from jobs.model import Job, JobState, Model, Price
from jobs.pools import PRIVATE, is_private
from jobs.ports.clock import Ids
from jobs.ports.intake import Examined, Intake, Models, SubmitRequest
from jobs.ports.store import Store

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A request that was found good, with what it was found good against."""

    request: SubmitRequest
    model: Model
    price: Price
    examined: Examined


def check(request: SubmitRequest, *, intake: Intake, models: Models, store: Store) -> Checked:
    """Resolve the model, its price and the input. Raises Refused."""
    _check_tenant(request.tenant)
    model = models.resolve(request.model)
    price = store.price(model.name)
    if price is None:
        raise NoPrice(model=model.name)
    return Checked(request=request, model=model, price=price, examined=intake.examine(request, model))


def _check_tenant(name: str) -> None:
    if not _TENANT.fullmatch(name):
        raise BadInput(
            source="--tenant", reason=f"{name!r} is no tenant's name: up to 63 of a-z, A-Z, 0-9, '.', '_', '-'"
        )


def submit(checked: Checked, *, intake: Intake, store: Store, ids: Ids, pool: str | None = None) -> Job:
    """Write the job. With an idempotency key used before, the job made then comes back instead.

    pool: a declared one; None makes one for this job alone.
    """
    request, spec = checked.request, checked.examined.spec
    job_id = ids.job_id()
    now = store.now()
    job = Job(
        id=job_id,
        tenant=request.tenant,
        project=request.project,
        tags=request.tags,
        creator=request.creator,
        spec=spec,
        price=checked.price,
        pool=pool or pool_of(job_id),
        priority=request.priority,
        state=JobState.RUNNING,
        total_rows=checked.examined.total_rows,
        idempotency_key=request.idempotency_key,
        created_at=now,
        deadline_at=now + spec.deadline_s if spec.deadline_s is not None else None,
    )
    intake.freeze(job, checked.examined)
    return store.create_job(job, checked.examined.files)


def pool_of(job_id: str) -> str:
    """An embedded run makes a pool of one worker for its job alone: two runs never take each other's tasks."""
    return f"{PRIVATE}{job_id}"


def retry(
    parent: Job, *, select: str, rows: int, sampling: str, output: str, job_id: str, now: float, outcomes: str
) -> Job:
    """A child job of exactly the selected rows of a finished job, at the parent's frozen prompt and price.

    It runs where the parent ran: in its pool, or by itself.

    select: URI of the row numbers. sampling: canonical JSON, the parent's or changed.
    """
    spec = parent.spec.evolve(select=select, sampling=sampling, sample=0, limit=None, output=output, deadline_s=None)
    return Job(
        id=job_id,
        tenant=parent.tenant,
        project=parent.project,
        tags=parent.tags,
        creator=parent.creator,
        spec=spec,
        price=parent.price,
        pool=pool_of(job_id) if is_private(parent.pool) else parent.pool,
        priority=parent.priority,
        state=JobState.RUNNING,
        reason=f"retry of {outcomes} rows",
        total_rows=rows,
        parent=parent.id,
        created_at=now,
    )
