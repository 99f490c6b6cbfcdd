"""Files and batches as OpenAI's API knows them: values, and the rules by which a batch's state follows its job's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jobs.errors import BadInput
from jobs.model import Job, JobState, Value

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
WINDOW = r"^(\d{1,6})(m|h|d)$"
_BYTES_A_TOKEN = 4
BATCH_KEY = "batch:"
"""With a batch's id behind it: the idempotency key of its job."""
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}


class FileKind(StrEnum):
    """What a stored file is to its batch."""

    BATCH = "batch"
    OUTPUT = "batch_output"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile(Value):
    """A file of a tenant. uri: where its bytes lie; size in bytes; checksum: sha256, hex.

    batch: of which it is the output. deleted_at: it is gone for its tenant; the sweeper takes its bytes.
    """

    id: str
    tenant: str
    purpose: FileKind
    filename: str
    uri: str
    size: int
    checksum: str
    project: str = ""
    creator: str = ""
    batch: str | None = None
    created_at: float = 0.0
    expires_at: float | None = None
    deleted_at: float | None = None


class BatchStatus(StrEnum):
    """OpenAI's states."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in {BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class LineError(Value):
    """What is wrong with a line of a batch's input. line: from 1, or None for the file as a whole."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Value):
    """A batch's record. Its progress is its job's; its times are noted when they are first seen.

    job: set once its input was found good. times: status → seconds since the epoch. enqueued_tokens: what it holds of
    its tenant's quota, 0 once returned. asked_model: the model as the lines name it, an alias perhaps.
    order: "none" or "input". cancel_asked: cancelled while it was validating. webhook: of the one that is told of its
    end beside the tenant's own, "" for none.
    """

    id: str
    tenant: str
    input_file: str
    endpoint: str
    window: str
    status: BatchStatus = BatchStatus.VALIDATING
    project: str = ""
    creator: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    order: str = "none"
    output_expires_s: int | None = None
    asked_model: str = ""
    job: str | None = None
    output_file: str | None = None
    error_file: str | None = None
    errors: tuple[LineError, ...] = ()
    times: Mapping[str, float] = field(default_factory=dict)
    enqueued_tokens: int = 0
    cancel_asked: bool = False
    webhook: str = ""
    created_at: float = 0.0
    expires_at: float | None = None
    version: int = 0


def window_s(text: str) -> float:
    """Seconds of a completion window: `24h`, or any number of m, h or d. Raises BadInput."""
    found = re.fullmatch(WINDOW, text, re.ASCII)
    if not found or not int(found[1]):
        raise BadInput(source="completion_window", reason=f"{text!r} is no window: write 24h, 30m or 2d")
    return float(int(found[1]) * _SECONDS[found[2]])


_OF_JOB = {
    JobState.RUNNING: BatchStatus.IN_PROGRESS,
    JobState.PAUSED: BatchStatus.IN_PROGRESS,
    JobState.CANCELLING: BatchStatus.CANCELLING,
    JobState.EXPIRING: BatchStatus.IN_PROGRESS,
}
_AT_END = {
    JobState.COMPLETED: BatchStatus.COMPLETED,
    JobState.FAILED: BatchStatus.COMPLETED,
    JobState.CANCELLED: BatchStatus.CANCELLED,
    JobState.EXPIRED: BatchStatus.EXPIRED,
}


def tokens_of(size: int) -> int:
    """What a file of so many bytes counts against a tenant's quota: a token is about four bytes, its JSON included."""
    return -(-size // _BYTES_A_TOKEN)


def result_file_id(batch_id: str, which: str) -> str:
    """Of the file of a batch's "output" or "error" lines: whoever writes it after a crash writes the same one."""
    return f"file-{batch_id.removeprefix('batch_')}-{which}"


def status_of(batch: Batch, job: Job | None) -> BatchStatus:
    """Where the batch stands.

    Once its job is at its end it is `finalizing` until its files are written, which is noted in the record. A job whose
    rows all are errors is a `failed` job and, as at OpenAI, a completed batch with an error file.
    """
    if batch.status.terminal:
        return batch.status
    if job is None:
        return BatchStatus.CANCELLING if batch.cancel_asked else BatchStatus.VALIDATING
    return status_with(job.state)


def status_with(state: JobState) -> BatchStatus:
    """Where a batch stands whose job is in this state, until its files are written."""
    if state.terminal:
        return BatchStatus.CANCELLING if state is JobState.CANCELLED else BatchStatus.FINALIZING
    return _OF_JOB[state]


def end_of(job: Job) -> BatchStatus:
    """The last state of a batch, once its files are written."""
    return _AT_END[job.state]
