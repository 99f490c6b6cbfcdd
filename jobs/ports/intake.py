"""The intake port: looks at a request's input before anything starts, and refuses what cannot work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jobs.model import InputFile, Job, JobSpec, Model, Priority, Value
from jobs.ports.engine import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest(Value):
    """What a tenant asks for, as typed. Texts of files (template, schema) are already read.

    sampling: OpenAI-named parameters. keep: None for all columns. vary: column → values. pause_on: share, or None
    for never. deadline_s: from the job's creation. output: folder URI. pool: a declared one, or None for the first
    that serves the model. asked_model: another name of `model`, by which the lines of a JSONL input ask for it.
    endpoint: that each of those lines must name; "" for whatever the first one names. webhook: as in `JobSpec`.
    foreign: the input is a tenant's, named over REST or by a topic: it is looked at in a process of its own, in bounds.
    """

    input: str
    model: str
    output: str
    tenant: str = "default"
    project: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    creator: str = ""
    priority: Priority = Priority.NORMAL
    id_column: str | None = None
    system: str | None = None
    prompt: str | None = None
    template: str | None = None
    schema: str | None = None
    keep: tuple[str, ...] | None = None
    vary: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    order: str = "none"
    rows_per_task: int | None = None
    sample: int = 0
    sample_seed: int = 0
    pause_on: float | None = 0.2
    deadline_s: float | None = None
    idempotency_key: str | None = None
    pool: str | None = None
    asked_model: str = ""
    endpoint: str = ""
    webhook: str = ""
    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined(Value):
    """A request that can work: its frozen input, its spec, and how many rows it must account for.

    schemas: of the input and of the output, opaque here.
    """

    files: tuple[InputFile, ...]
    spec: JobSpec
    total_rows: int
    schemas: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPrompts(Value):
    """Rendered prompts of some rows, in the order in which they would be fed. faults: rows that would be errors.

    max_tokens: of each row, or None where it has no limit.
    """

    rows: Sequence[int]
    prompts: Sequence[Prompt]
    max_tokens: Sequence[int | None]
    faults: int = 0


class Intake(Protocol):
    """Raises Refused (BadInput, BadTemplate, BadSchema, NotFound, OutputTaken …) naming file, row, column or line."""

    def examine(self, request: SubmitRequest, model: Model) -> Examined: ...

    def asked_model(self, uri: str) -> str:
        """The model that the first line of a JSONL file names. Raises BadInput with `lines` (jobs.filing.LineError)."""
        ...

    def freeze(self, job: Job, examined: Examined) -> None:
        """Write what is frozen beside a job's record, before the record. Safe to repeat."""
        ...

    def check_unchanged(self, job: Job, files: Sequence[InputFile], model: Model) -> None:
        """Raises InputChanged naming the file, or ModelChanged."""
        ...

    def sample(self, examined: Examined, model: Model, rows: int, seed: int) -> SampledPrompts:
        """Render some seeded random rows as the job would (all of them if there are fewer)."""
        ...


class Tokenizer(Protocol):
    """Counts as the engine will, without an engine."""

    def ids(self, prompt: Prompt) -> Sequence[int]: ...

    @property
    def exact(self) -> bool:
        """False where the model's own tokenizer is not at hand and characters are counted instead."""
        ...


class Models(Protocol):
    """The registry."""

    def resolve(self, name: str) -> Model:
        """Raises NotFound (listing the known ones) and ModelChanged."""
        ...
