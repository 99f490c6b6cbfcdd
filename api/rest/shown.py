"""Our values as OpenAI's API shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from api.rest.job_schemas import JobBody, QuoteBody
from api.rest.schemas import (
    BatchBody,
    Counts,
    Errors,
    FileBody,
    InputDetails,
    LineErrorBody,
    Page,
    UsageBody,
)
from jobs.batch_files import ANSWERED
from jobs.filing import Batch, BatchStatus, StoredFile, status_of
from jobs.model import Job, Usage
from jobs.pricing import show
from jobs.quote import Quote

T = TypeVar("T")


def page_of(found: Sequence[T], limit: int, id_of: Callable[[T], str]) -> Page[T]:
    """found: one more than the limit where there are more."""
    data = list(found[:limit])
    first, last = (id_of(data[0]), id_of(data[-1])) if data else (None, None)
    return Page(data=data, first_id=first, last_id=last, has_more=len(found) > limit)


def file_body(file: StoredFile) -> FileBody:
    """A file."""
    return FileBody(
        id=file.id,
        bytes=file.size,
        created_at=int(file.created_at),
        expires_at=_whole(file.expires_at),
        filename=file.filename,
        purpose=file.purpose.value,
    )


def usage_body(usage: Usage) -> UsageBody:
    """Tokens, counted as OpenAI does."""
    prompt = usage.input_tokens + usage.cached_tokens
    return UsageBody(
        input_tokens=prompt,
        input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.output_tokens,
        total_tokens=prompt + usage.output_tokens,
    )


def counts_of(job: Job) -> Counts:
    """Rows, as a batch counts its requests."""
    answered = sum(n for outcome, n in job.usage.outcomes.items() if outcome in ANSWERED)
    return Counts(total=job.total_rows, completed=answered, failed=job.usage.rows - answered)


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)


def batch_body(batch: Batch, job: Job | None, words: Callable[[str], str]) -> BatchBody:
    """A batch, as far as its job is. words: takes from a message what nobody shall see."""
    times: dict[str, Any] = {
        f"{name}_at": int(at) for name, at in batch.times.items() if name != BatchStatus.VALIDATING
    }
    lines = [
        LineErrorBody(code=one.code, line=one.line, message=words(one.message), param=one.param) for one in batch.errors
    ]
    return BatchBody(
        id=batch.id,
        endpoint=batch.endpoint,
        model=batch.asked_model or None,
        errors=Errors(data=lines) if lines else None,
        input_file_id=batch.input_file,
        completion_window=batch.window,
        status=status_of(batch, job),
        output_file_id=batch.output_file,
        error_file_id=batch.error_file,
        created_at=int(batch.created_at),
        expires_at=_whole(batch.expires_at),
        request_counts=counts_of(job) if job is not None else Counts(),
        usage=usage_body(job.usage) if job is not None else UsageBody(),
        metadata=dict(batch.metadata) or None,
        **times,
    )


def job_body(job: Job, words: Callable[[str], str], inside: Sequence[str]) -> JobBody:
    """A job. inside: beginnings of places that are not shown."""
    spec, folder = job.spec, job.folder
    return JobBody(
        id=job.id,
        state=job.state,
        reason=words(job.reason),
        model=spec.model,
        asked_model=spec.asked_model or spec.model,
        project=job.project,
        tags=dict(job.tags),
        priority=job.priority,
        pool=job.pool,
        parent=job.parent,
        order=spec.order,
        request_counts=counts_of(job),
        outcomes={str(outcome): n for outcome, n in job.usage.outcomes.items() if n},
        usage=usage_body(job.usage),
        amount=_amount(job.amount_pico),
        amount_pico=job.amount_pico,
        currency=job.price.currency,
        price_version=job.price.version,
        output=None if any(folder.startswith(place) for place in inside) else folder,
        created_at=job.created_at,
        deadline_at=job.deadline_at,
        finished_at=job.finished_at,
    )


def quote_body(quote: Quote) -> QuoteBody:
    """A quote."""
    usage = quote.usage
    return QuoteBody(
        rows=quote.rows,
        sampled=quote.sampled,
        faults=quote.faults,
        input_tokens=usage.input_tokens + usage.cached_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        cached_share=quote.cached_share,
        exact_tokens=quote.exact_tokens,
        amount=_amount(quote.amount_pico),
        amount_pico=quote.amount_pico,
        currency=quote.currency,
        seconds=quote.seconds,
    )


def _amount(pico: int) -> str:
    return show(pico, "").rstrip()
