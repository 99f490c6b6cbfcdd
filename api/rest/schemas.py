"""What of OpenAI's API is answered: files, batches, models, lists. Times are whole seconds since the epoch."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from jobs.filing import BatchStatus

T = TypeVar("T")
FILE_EXAMPLE: dict[str, Any] = {
    "id": "file-06cdkpbjwf0t8gz1s2n4q6v8xm",
    "object": "file",
    "bytes": 143_201,
    "created_at": 1_790_000_000,
    "expires_at": None,
    "filename": "requests.jsonl",
    "purpose": "batch",
    "status": "processed",
    "status_details": None,
}
BATCH_EXAMPLE: dict[str, Any] = {
    "id": "batch_06cdkpbk3v1w9h02t3p5r7x9yn",
    "object": "batch",
    "endpoint": "/v1/chat/completions",
    "model": "smollm2",
    "errors": None,
    "input_file_id": FILE_EXAMPLE["id"],
    "completion_window": "24h",
    "status": "in_progress",
    "output_file_id": None,
    "error_file_id": None,
    "created_at": 1_790_000_010,
    "in_progress_at": 1_790_000_012,
    "expires_at": 1_790_086_410,
    "finalizing_at": None,
    "completed_at": None,
    "failed_at": None,
    "expired_at": None,
    "cancelling_at": None,
    "cancelled_at": None,
    "request_counts": {"total": 500, "completed": 120, "failed": 1},
    "usage": {
        "input_tokens": 40_210,
        "input_tokens_details": {"cached_tokens": 9_600},
        "output_tokens": 8_100,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 48_310,
    },
    "metadata": {"customer": "catalog"},
}


def example(*examples: dict[str, Any]) -> ConfigDict:
    """A model's configuration with examples."""
    return ConfigDict(json_schema_extra={"examples": list(examples)})


class Ask(BaseModel):
    """What a client asks for, as the document has it: pydantic alone would take `true` and `"1"` for the number 1."""

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        annotation: Any = cls.model_fields[str(info.field_name)].annotation
        kinds = _kinds_of(annotation)
        if isinstance(value, (bool, str)) and type(value) not in kinds and not kinds.isdisjoint({int, float}):
            message = "this is no number"
            raise ValueError(message)
        return value


@cache
def _kinds_of(annotation: Any) -> frozenset[Any]:
    """The types that a field may have."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds_of(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        return frozenset().union(*map(_kinds_of, get_args(annotation)))
    return frozenset({annotation})


class Page(BaseModel, Generic[T]):
    """A list by cursor: go on with `after=last_id` while `has_more`."""

    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class FileBody(BaseModel):
    """OpenAI's file object. `status` is always `processed`: a file is there once it is answered."""

    model_config = example(FILE_EXAMPLE)

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"] = "processed"
    status_details: str | None = None


class Deleted(BaseModel):
    """That something is gone."""

    model_config = example({"id": FILE_EXAMPLE["id"], "object": "file", "deleted": True})

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class LineErrorBody(BaseModel):
    """What is wrong with a line of the input file. line: from 1, null for the file as a whole."""

    code: str
    line: int | None = None
    message: str
    param: str | None = None


class Errors(BaseModel):
    """Why a batch failed."""

    object: Literal["list"] = "list"
    data: list[LineErrorBody]


class Counts(BaseModel):
    """Requests: in all, answered so far, and ended otherwise."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class InputDetails(BaseModel):
    """cached_tokens: of the input tokens, those that the prefix cache had."""

    cached_tokens: int = 0


class OutputDetails(BaseModel):
    """reasoning_tokens: not told apart from other output."""

    reasoning_tokens: int = 0


class UsageBody(BaseModel):
    """Tokens so far. `input_tokens` are all prompt tokens, the cached ones included, as OpenAI counts them."""

    input_tokens: int = 0
    input_tokens_details: InputDetails = InputDetails()
    output_tokens: int = 0
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int = 0


class BatchBody(BaseModel):
    """OpenAI's batch object."""

    model_config = example(BATCH_EXAMPLE)

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None = None
    errors: Errors | None = None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: Counts = Counts()
    usage: UsageBody = UsageBody()
    metadata: dict[str, str] | None = None


class ModelBody(BaseModel):
    """A model that requests may name, or an alias of one."""

    model_config = example({"id": "smollm2", "object": "model", "created": 0, "owned_by": "nightmill"})

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "nightmill"


class ModelList(BaseModel):
    """All of them; no cursor, as at OpenAI."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


class ErrorFacts(BaseModel):
    """code: stable, to be compared; message: for people."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """OpenAI's error body."""

    error: ErrorFacts


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
