"""Submitting a job: everything is checked and frozen before the record is written; nothing starts here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.errors import BadInput, KeyReused, NoPrice
from jobs.model import Job, JobState, Model, Price
from jobs.pools import PRIVATE, Pool, is_private, pool_named, resolve_pool
from jobs.ports.clock import Ids
from jobs.ports.intake import Examined, Intake, Models, SubmitRequest
from jobs.ports.store import Store
from jobs.request import differences, digest
from jobs.tenancy import TENANT

SchemaCheck = Callable[[Pool, str], None]
"""Asks an engine of the pool, if there is one now, whether it can follow an output schema. Raises BadSchema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A request that was found good, with what it was found good against."""

    request: SubmitRequest
    model: Model
    price: Price
    examined: Examined


def made_before(request: SubmitRequest, store: Store) -> Job | None:
    """The job that the request's idempotency key made, however its input may look by now.

    Raises KeyReused where that one was asked for otherwise.
    """
    if request.idempotency_key is None:
        return None
    job = store.job_of_key(request.tenant, request.idempotency_key)
    if job is not None:
        _check_same(request, job)
    return job


class Prices(Protocol):
    """Where a model's price stands."""

    def price(self, model: str) -> Price | None: ...


def check(
    request: SubmitRequest, *, intake: Intake, models: Models, store: Prices, pool: Pool | None = None
) -> Checked:
    """Resolve the model, its price and the input. Raises Refused.

    pool: whose engines will run it, with their arguments; None for an engine of its own.
    """
    _check_tenant(request.tenant)
    model = models.resolve(request.model)
    price = store.price(model.name)
    if price is None:
        raise NoPrice(model=model.name)
    run = request if pool is None else request.evolve(engine_args=pool.engine_args)
    return Checked(request=request, model=model, price=price, examined=intake.examine(run, model))


def _check_tenant(name: str) -> None:
    if not is_tenant(name):
        raise BadInput(
            source="--tenant", reason=f"{name!r} is no tenant's name: up to 63 of a-z, A-Z, 0-9, '.', '_', '-'"
        )


def is_tenant(name: str) -> bool:
    """Whether it can be a tenant's name: it becomes part of accounts, folders and topics."""
    return bool(TENANT.fullmatch(name))


def submit(checked: Checked, *, intake: Intake, store: Store, ids: Ids, pool: str | None = None) -> Job:
    """Write the job. With an idempotency key used before, the job made then comes back instead.

    pool: a declared one; None makes one for this job alone. Raises KeyReused, as `made_before`.
    """
    return submit_all([(checked, pool)], intake=intake, store=store, ids=ids)[0]


def submit_all(wanted: Sequence[tuple[Checked, str | None]], *, intake: Intake, store: Store, ids: Ids) -> list[Job]:
    """As `submit` for each (checked, pool), in one transaction."""
    now = store.now()
    jobs = [_job_of(checked, pool, ids.job_id(), now) for checked, pool in wanted]
    for job, (checked, _) in zip(jobs, wanted, strict=True):
        intake.freeze(job, checked.examined)
    made = store.create_jobs([(job, one.examined.files) for job, (one, _) in zip(jobs, wanted, strict=True)])
    for job, before, (checked, _) in zip(jobs, made, wanted, strict=True):
        if before.id != job.id:
            _check_same(checked.request, before)
    return made


def _job_of(checked: Checked, pool: str | None, job_id: str, now: float) -> Job:
    request, spec = checked.request, checked.examined.spec
    return Job(
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
        request=digest(request),
        created_at=now,
        deadline_at=now + spec.deadline_s if spec.deadline_s is not None else None,
    )


def _check_same(request: SubmitRequest, job: Job) -> None:
    if names := differences(job.request, digest(request)):
        raise KeyReused(key=request.idempotency_key, job=job.id, fields=", ".join(names))


def submit_to_pool(
    request: SubmitRequest,
    *,
    pools: Sequence[Pool],
    intake: Intake,
    models: Models,
    store: Store,
    ids: Ids,
    can_follow: SchemaCheck | None = None,
) -> Job:
    """Check a request and write its job, for the pool that it names or that serves its model.

    It may be repeated at any time after a death: the idempotency key makes it one job. Raises Refused, KeyReused.
    """
    if (made := made_before(request, store)) is not None:
        return made
    pool = resolve_pool(request.model, pools) if request.pool is None else pool_named(request.pool, pools)
    if pool.model != request.model:
        raise BadInput(source="--pool", reason=f"pool {pool.name} serves {pool.model}, not {request.model}")
    checked = check(request, intake=intake, models=models, store=store, pool=pool)
    if can_follow is not None and checked.examined.spec.schema is not None:
        can_follow(pool, checked.examined.spec.schema)
    return submit(checked, intake=intake, store=store, ids=ids, pool=pool.name)


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
