"""The values of the domain: frozen, keyword-only, copied with `evolve`. Words as in ARCHITECTURE.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from jobs.ports.engine import ModelKind
from jobs.ranges import Ranges


class Value:
    """Base of the frozen values."""

    __slots__ = ()

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]  # every subclass is a dataclass


class Priority(StrEnum):
    """How urgent a job is. `rank` 0 goes first."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    BATCH = "batch"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {priority: rank for rank, priority in enumerate(Priority)}


class Outcome(StrEnum):
    """What became of a row. A row cut off by its token limit is `truncated`, never `ok`."""

    OK = "ok"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    ERROR = "error"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class JobState(StrEnum):
    """A job runs until it is paused, or ends; `cancelling` and `expiring` last until no task is open."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    EXPIRING = "expiring"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL_JOB

    @property
    def ending(self) -> bool:
        """No further row is generated, but rows are not all accounted for yet."""
        return self in {JobState.CANCELLING, JobState.EXPIRING}


_TERMINAL_JOB = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED})


class TaskState(StrEnum):
    """`done`, `split` and `void` are terminal."""

    QUEUED = "queued"
    RELEASED = "released"
    LEASED = "leased"
    DONE = "done"
    SPLIT = "split"
    VOID = "void"

    @property
    def terminal(self) -> bool:
        return self in {TaskState.DONE, TaskState.SPLIT, TaskState.VOID}


class VoidReason(StrEnum):
    """Why a task's rows will never be generated."""

    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Value):
    """Where a task's rows lie.

    staged: URI of a staged Parquet file (ranges then count rows inside `row_group`), or None: the job's own input
    (ranges are then the job's row numbers).
    """

    staged: str | None = None
    row_group: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Value):
    """A slice of a job's rows: the unit of queueing, leasing, one result part and one ledger posting.

    est_input_tokens, est_output_tokens: the planner's estimate for the whole task.
    suspect: its rows were in an engine that died; it runs alone until it is done or halved.
    alone_deaths: how often the engine died while this task was alone in it.
    lease_until: database clock, seconds since the epoch; so is released_at, which only a task handed to a worker has.
    """

    id: str
    job: str
    segment: int
    pool: str
    priority: Priority
    source: Source
    ranges: Ranges
    rows: int
    est_input_tokens: int = 0
    est_output_tokens: int = 0
    state: TaskState = TaskState.QUEUED
    epoch: int = 0
    ticket: str | None = None
    token: str | None = None
    owner: str | None = None
    lease_until: float | None = None
    suspect: bool = False
    alone_deaths: int = 0
    void_reason: VoidReason | None = None
    parent: str | None = None
    released_at: float | None = None

    @property
    def tokens(self) -> int:
        """Its size for whoever shares out work, estimated; never less than a token a row."""
        return max(self.rows, self.est_input_tokens + self.est_output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Value):
    """What lies in a topic: a hint that a task was released. It carries no truth and no row."""

    task: str
    epoch: int
    ticket: str
    pool: str
    priority: Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Value):
    """Rows and tokens of a task or job. Token classes are disjoint: `input_tokens` here are the *uncached* ones."""

    rows: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: Usage) -> Usage:
        keys = {**self.outcomes, **other.outcomes}
        return Usage(
            rows=self.rows + other.rows,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            outcomes={k: self.outcomes.get(k, 0) + other.outcomes.get(k, 0) for k in keys},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Value):
    """The Parquet file that one lease of a task wrote. It counts only when it is on the manifest.

    first_row, last_row: smallest and largest `row` in it; ascending: its rows are in ascending order.
    checksum: sha256 of the file's bytes, hex.
    """

    task: str
    uri: str
    size: int
    checksum: str
    rows: int
    first_row: int
    last_row: int
    ascending: bool
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile(Value):
    """One file of a job's frozen input list. `row_groups`: rows in each; `first_row`: its place in the whole input.

    stamp: what must not change: "mtime_ns:<n>" for local files, "etag:<text>" for object stores.
    row_group_bytes: uncompressed bytes of each row group. JSONL has no row groups: there `row_groups` are stretches of
    lines and these their bytes in the file, so that a stretch can be found without reading what lies before it.
    """

    uri: str
    size: int
    stamp: str
    rows: int
    first_row: int
    row_groups: tuple[int, ...]
    row_group_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(Value):
    """A frozen price version: micro-units of `currency` per million tokens, by token class.

    example: shipped with Nightmill for trying out; statements say so.
    """

    version: str
    model: str
    currency: str
    input_micro: int
    cached_micro: int
    output_micro: int
    example: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Value):
    """A model of the registry. checksum: sha256 over its files, hex; stamp: their sizes and mtimes."""

    name: str
    kind: ModelKind
    path: str
    engine: str
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    checksum: str = ""
    stamp: str = ""
    example: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(Value):
    """What is frozen at submit. All of it is plain data, so that it can be written down as JSON.

    input_format: "parquet" or "jsonl". messages: (role, template) pairs; empty for JSONL and for pooling models.
    text: the template of a completion or embedding prompt. vary: column → values, in order of declaration.
    kept: (input column, output column) pairs. keep_types: pyarrow's text of the kept columns' types is in the
    output schema file, not here. sample: rows of the seeded sample that runs first, 0 for none.
    pause_on: share of error and truncated rows that pauses the job, None for never. select: URI of a file of row
    numbers that this job is limited to (a retry), or None. deadline_s: seconds from creation, or None.
    asked_model: the alias that was asked for and that answers echo; "" where it was the model's own name.
    endpoint: OpenAI's, that the lines of a JSONL input name; "" for other inputs.
    webhook: id of the one that is told of its end beside the tenant's own, "" for none.
    plain: its rows are lines that ask for a text each, so the results' columns are known and no file has them.
    """

    model: str
    model_kind: ModelKind
    model_checksum: str
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    input: str = ""
    input_format: str = "parquet"
    input_rows: int = 0
    id_column: str | None = None
    vary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    messages: tuple[tuple[str, str], ...] = ()
    text: str | None = None
    schema: str | None = None
    sampling: str = "{}"
    kept: tuple[tuple[str, str], ...] = ()
    limit: int | None = None
    order: str = "none"
    rows_per_task: int | None = None
    output: str = ""
    sample: int = 0
    seed: int = 0
    pause_on: float | None = 0.2
    select: str | None = None
    deadline_s: float | None = None
    asked_model: str = ""
    endpoint: str = ""
    webhook: str = ""
    plain: bool = False

    @property
    def copies(self) -> int:
        """How many rows each input row becomes (the product of the varied values)."""
        product = 1
        for values in self.vary.values():
            product *= len(values)
        return product


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Value):
    """A job's record. total_rows: rows the job must account for; next_segment: how far it is planned.

    usage: folded totals (they trail the commits by a fraction of a second). version: changes with every change of
    state. request: digest by field of what was asked for (`jobs.request`), empty where there is none.
    """

    id: str
    tenant: str
    project: str
    tags: Mapping[str, str]
    creator: str
    spec: JobSpec
    price: Price
    pool: str
    priority: Priority
    state: JobState
    reason: str = ""
    version: int = 0
    total_rows: int = 0
    next_segment: int = 0
    planned: bool = False
    parent: str | None = None
    idempotency_key: str | None = None
    request: Mapping[str, str] = field(default_factory=dict)
    created_at: float = 0.0
    finished_at: float | None = None
    deadline_at: float | None = None
    usage: Usage = field(default_factory=Usage)
    amount_pico: int = 0

    @property
    def folder(self) -> str:
        """URI of the folder that the finaliser publishes into."""
        return f"{self.spec.output.rstrip('/')}/{self.id}"
