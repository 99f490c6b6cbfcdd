"""What Nightmill's own jobs are asked for by and answered as. Times are seconds since the epoch, with fractions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.rest.hook_schemas import WebhookAsk
from api.rest.schemas import FILE_EXAMPLE, Ask, Counts, UsageBody, example
from jobs.model import JobState, Outcome, Priority

_ASKED: dict[str, Any] = {
    "input": "s3://catalog/cars.parquet",
    "model": "smollm2",
    "prompt": "Describe the {{ name }} in one sentence.",
    "max_tokens": 48,
    "output": "s3://results/",
    "priority": "high",
    "tags": {"team": "catalog"},
}
_UPLOADED: dict[str, Any] = {"input_file_id": FILE_EXAMPLE["id"], "model": "smollm2", "deadline": "24h"}
_INLINE: dict[str, Any] = {
    "rows": [{"name": "a lamp"}, {"name": "a chair"}],
    "model": "smollm2",
    "prompt": "Describe {{ name }}.",
}
JOB_EXAMPLE: dict[str, Any] = {
    "id": "job-06cdkpbm5y3xb28v4r7t9w1z0q",
    "object": "job",
    "state": "running",
    "reason": "",
    "model": "smollm2",
    "asked_model": "smollm2",
    "project": "",
    "tags": {"team": "catalog"},
    "priority": "high",
    "pool": "smollm2",
    "parent": None,
    "order": "none",
    "request_counts": {"total": 406, "completed": 120, "failed": 1},
    "outcomes": {"ok": 118, "truncated": 2, "error": 1},
    "usage": {
        "input_tokens": 12_210,
        "input_tokens_details": {"cached_tokens": 6_400},
        "output_tokens": 4_100,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 16_310,
    },
    "amount": "0.001271",
    "amount_pico": 1_270_500_000,
    "currency": "USD",
    "price_version": "example-1",
    "output": "s3://results/job-06cdkpbm5y3xb28v4r7t9w1z0q",
    "created_at": 1_790_000_020.25,
    "deadline_at": None,
    "finished_at": None,
}
MOST = (1 << 63) - 1
"""Of whole numbers: what databases and engines hold."""
JobPath = Annotated[str, Field(max_length=128)]


class Sampling(Ask):
    """Parameters of every row, by their OpenAI or vLLM names. What is not given is the model's default."""

    max_tokens: Annotated[int | None, Field(ge=1, le=MOST)] = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=-1, le=MOST)] = None
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    seed: Annotated[int | None, Field(ge=-MOST, le=MOST)] = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    repetition_penalty: Annotated[float | None, Field(gt=0, le=2)] = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None


class JobRequest(Sampling):
    """A job. Exactly one of `input`, `input_file_id` and `rows` says what it reads; the fields are those of
    `nightmill submit`.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_ASKED, _UPLOADED, _INLINE]})

    input: Annotated[str | None, Field(max_length=2048, description="URI below a prefix that you may read.")] = None
    input_file_id: Annotated[str | None, Field(max_length=128, description="An uploaded file.")] = None
    rows: Annotated[
        Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1_000_000, fail_fast=True)] | None,
        Field(description="The rows themselves."),
    ] = None
    model: Annotated[str, Field(min_length=1, max_length=256)]
    output: Annotated[
        str | None,
        Field(max_length=2048, description="Folder URI below a prefix that you may write; default: the service's own."),
    ] = None
    priority: Priority = Priority.NORMAL
    id: Annotated[str | None, Field(max_length=256, description="Column of unique ids, kept as custom_id.")] = None
    system: str | None = None
    prompt: Annotated[str | None, Field(description="User message; mentions columns as {{ column }}.")] = None
    template: Annotated[str | None, Field(description="YAML with the messages, instead of system and prompt.")] = None
    output_schema: Annotated[
        dict[str, Any] | None, Field(alias="schema", description="JSON Schema that every output follows.")
    ] = None
    keep: Annotated[list[str] | None, Field(description="Input columns to pass through. Default: all.")] = None
    vary: Annotated[
        dict[str, Annotated[list[str], Field(min_length=1)]] | None,
        Field(description="Column and values: each row once a value."),
    ] = None
    limit: Annotated[int | None, Field(ge=1, le=MOST)] = None
    order: Literal["none", "input"] = "none"
    sample: Annotated[int | None, Field(ge=1, le=MOST, description="Run so many random rows first, then pause.")] = None
    sample_seed: Annotated[int, Field(ge=-MOST, le=MOST)] = 0
    pause_on: Annotated[float | str | None, Field(description="Share of bad rows that pauses the job, or never.")] = (
        None
    )
    rows_per_task: Annotated[int | None, Field(ge=1, le=65_536)] = None
    deadline: Annotated[float | str | None, Field(description="Give up what is not done after so long: 90s, 8h.")] = (
        None
    )
    tags: Annotated[dict[str, str] | None, Field(max_length=64)] = None
    webhook: WebhookAsk | None = None


class JobBody(BaseModel):
    """A job as it stands. request_counts: answered (ok, truncated, refused) and others; outcomes: each of them.

    amount: of `currency`, exact; amount_pico: the same in 10⁻¹² of it. output: where the results are published, null
    where that is the service's own storage.
    """

    model_config = example(JOB_EXAMPLE)

    id: str
    object: Literal["job"] = "job"
    state: JobState
    reason: str
    model: str
    asked_model: str
    project: str
    tags: dict[str, str]
    priority: Priority
    pool: str
    parent: str | None = None
    order: str
    request_counts: Counts
    outcomes: dict[str, int]
    usage: UsageBody
    amount: str
    amount_pico: int
    currency: str
    price_version: str
    output: str | None = None
    created_at: float
    deadline_at: float | None = None
    finished_at: float | None = None


class RetryRequest(Sampling):
    """Which rows of a finished job to do again, and what to change for them."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"outcomes": ["error"], "max_tokens": 96}]}
    )

    outcomes: Annotated[list[Outcome], Field(min_length=1)] = [Outcome.ERROR, Outcome.TRUNCATED]  # noqa: RUF012  # pydantic copies it
    output: Annotated[str | None, Field(max_length=2048)] = None


class PriorityRequest(Ask):
    """How urgent the job is from now on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"priority": "critical"}]})

    priority: Priority


class QuoteBody(BaseModel):
    """What a job would cost at most, and take. seconds: null where the model was never timed here.

    sampled, faults: rows that were looked at, and those of them that would be errors before they reach an engine.
    """

    model_config = example(
        {
            "object": "quote",
            "rows": 406,
            "sampled": 406,
            "faults": 0,
            "input_tokens": 12_210,
            "cached_tokens": 6_400,
            "output_tokens": 19_488,
            "cached_share": 0.52,
            "exact_tokens": True,
            "amount": "0.004348",
            "amount_pico": 4_348_100_000,
            "currency": "USD",
            "seconds": 12.5,
        }
    )

    object: Literal["quote"] = "quote"
    rows: int
    sampled: int
    faults: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cached_share: float
    exact_tokens: bool
    amount: str
    amount_pico: int
    currency: str
    seconds: float | None = None


class PartBody(BaseModel):
    """A Parquet file of the results. url: to read it by, for a while, without a key where it leads to another host."""

    name: str
    rows: int
    size: int
    checksum: str
    first_row: int
    last_row: int
    url: str


class ManifestBody(BaseModel):
    """What a finished job's results are. columns: names and Arrow types."""

    model_config = example(
        {
            "object": "manifest",
            "job": JOB_EXAMPLE["id"],
            "state": "completed",
            "rows": 406,
            "columns": [{"name": "row", "type": "int64"}],
            "parts": [
                {
                    "name": "part-00000.parquet",
                    "rows": 406,
                    "size": 40_961,
                    "checksum": "9f2c",
                    "first_row": 0,
                    "last_row": 405,
                    "url": f"/v1/jobs/{JOB_EXAMPLE['id']}/results/part-00000.parquet",
                }
            ],
        }
    )

    object: Literal["manifest"] = "manifest"
    job: str
    state: str
    rows: int
    columns: list[dict[str, str]]
    parts: list[PartBody]
