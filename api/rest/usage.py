"""`/v1/usage`, `/v1/limits`, `/v1/pools`: what a tenant spent, what it may, and what there is."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from api.rest.answers import read
from api.rest.auth import Caller, JobsReader, UsageReader
from api.rest.keyed import KeyedRoute
from api.rest.parts import Parts, parts_of
from api.rest.schemas import example
from jobs.allotment import FIELDS, demands_of
from jobs.ports.limiting import Kind
from jobs.pricing import show

router = APIRouter(prefix="/v1", tags=["account"], route_class=KeyedRoute)


class UsageLine(BaseModel):
    """Postings of one token class, of a job, or (job "") of all interactive requests of one key to one model.

    creator: the key. input: uncached tokens; cached: of the prefix cache; output.
    """

    job: str
    creator: str
    project: str
    model: str
    kind: str
    token_class: str
    tokens: int
    amount: str
    amount_pico: int
    currency: str
    example_price: bool
    tags: dict[str, str]


class UsageBody(BaseModel):
    """The statement of a stretch of time. totals: by currency, exact."""

    model_config = example(
        {
            "object": "usage",
            "since": None,
            "until": None,
            "totals": {"USD": "0.000610"},
            "data": [
                {
                    "job": "job-06cdkpbm5y3xb28v4r7t9w1z0q",
                    "creator": "key_06cdkpbm5y3xb28v4r7t9w1z0q",
                    "project": "",
                    "model": "smollm2",
                    "kind": "usage",
                    "token_class": "input",
                    "tokens": 12_210,
                    "amount": "0.000610",
                    "amount_pico": 610_500_000,
                    "currency": "USD",
                    "example_price": True,
                    "tags": {},
                }
            ],
        }
    )

    object: Literal["usage"] = "usage"
    since: float | None = None
    until: float | None = None
    totals: dict[str, str]
    data: list[UsageLine]


class RateLimitBody(BaseModel):
    """A limit of interactive requests, of the asking key or of its tenant, as it stands.

    remaining: what could be taken at once; reset_s: seconds until all of it can, null for requests at a time.
    """

    of: Literal["key", "tenant"]
    limit: Literal["requests_per_minute", "tokens_per_minute", "concurrent_requests"]
    value: int
    remaining: int
    reset_s: float | None = None


class LimitsBody(BaseModel):
    """What the tenant may. enqueued_tokens_limit: null for none; enqueued_tokens: what its open batches hold of it.

    rate_limits: of interactive requests; what has no limit is not among them.
    """

    model_config = example(
        {
            "object": "limits",
            "enqueued_tokens": 35_801,
            "enqueued_tokens_limit": 1_000_000,
            "max_upload_bytes": 17_179_869_184,
            "max_body_bytes": 16_777_216,
            "max_batch_lines": 5_000_000,
            "rate_limits": [
                {"of": "key", "limit": "requests_per_minute", "value": 600, "remaining": 598, "reset_s": 0.2},
                {"of": "tenant", "limit": "concurrent_requests", "value": 64, "remaining": 61, "reset_s": None},
            ],
        }
    )

    object: Literal["limits"] = "limits"
    enqueued_tokens: int
    enqueued_tokens_limit: int | None = None
    max_upload_bytes: int
    max_body_bytes: int
    max_batch_lines: int
    rate_limits: list[RateLimitBody]


class PoolBody(BaseModel):
    """A pool: workers with one purpose and one model."""

    model_config = example({"name": "smollm2", "purpose": "batch", "model": "smollm2"})

    name: str
    purpose: str
    model: str


class PoolList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[PoolBody]


@router.get("/usage", responses=read(), summary="What was spent")
def usage(
    request: Request,
    caller: UsageReader,
    since: Annotated[
        float | None, Query(ge=0, allow_inf_nan=False, description="Seconds since the epoch, itself included.")
    ] = None,
    until: Annotated[
        float | None, Query(ge=0, allow_inf_nan=False, description="Seconds since the epoch, itself left out.")
    ] = None,
) -> UsageBody:
    """By job or, for interactive requests, by key and model; what was done again is never among it."""
    lines = parts_of(request).store.statement(caller.name, since=since, until=until)
    totals: dict[str, int] = {}
    for line in lines:
        totals[line.currency] = totals.get(line.currency, 0) + line.amount_pico
    return UsageBody(
        since=since,
        until=until,
        totals={currency: show(pico, "").rstrip() for currency, pico in sorted(totals.items())},
        data=[
            UsageLine(
                job=line.job,
                creator=line.creator,
                project=line.project,
                model=line.model,
                kind=line.kind,
                token_class=line.token_class,
                tokens=line.tokens,
                amount=show(line.amount_pico, "").rstrip(),
                amount_pico=line.amount_pico,
                currency=line.currency,
                example_price=line.example_price,
                tags=dict(line.tags),
            )
            for line in lines
        ],
    )


@router.get("/limits", responses=read(), summary="What is allowed")
def limits(request: Request, caller: JobsReader) -> LimitsBody:
    """Of the key, of the tenant, and of every request."""
    parts = parts_of(request)
    return LimitsBody(
        enqueued_tokens=parts.store.enqueued_tokens(caller.name),
        enqueued_tokens_limit=caller.tenant.enqueued_tokens_limit,
        max_upload_bytes=parts.limits.upload_bytes,
        max_body_bytes=parts.limits.body_bytes,
        max_batch_lines=parts.limits.max_lines,
        rate_limits=_rate_limits(parts, caller),
    )


def _rate_limits(parts: Parts, caller: Caller) -> list[RateLimitBody]:
    demands = demands_of(caller.key, caller.tenant)
    levels = parts.store.rate_levels([(demand.gauge, demand.limit) for demand in demands])
    return [
        RateLimitBody(
            of="key" if demand.gauge.scope.startswith("key:") else "tenant",
            limit=FIELDS[demand.gauge.kind],
            value=demand.limit,
            remaining=level.remaining,
            reset_s=None if demand.gauge.kind is Kind.PLACES else round(level.reset_s, 3),
        )
        for demand, level in zip(demands, levels, strict=True)
    ]


@router.get("/pools", responses=read(), summary="What there is")
def pools(request: Request, caller: JobsReader) -> PoolList:  # noqa: ARG001 - any good key may ask
    """The pools that serve jobs here."""
    found = parts_of(request).pools()
    return PoolList(data=[PoolBody(name=pool.name, purpose=pool.purpose, model=pool.model) for pool in found])
