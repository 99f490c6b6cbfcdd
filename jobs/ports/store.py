"""The database port: the truth about jobs, tasks and money. Every method is one transaction.

Methods raise DatabaseUnavailable when the backend does not answer and StorageFull when it cannot grow. Times are
seconds since the epoch by the *database's* clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from jobs.model import InputFile, Job, JobState, Message, Part, Priority, Task, TaskState, Usage, Value
from jobs.moves import Answer, Move
from jobs.ports.book import LedgerStore, PriceStore
from jobs.ports.census import CensusStore
from jobs.ports.filing import FilingStore
from jobs.ports.limiting import RateStore
from jobs.ports.live import PostingStore
from jobs.ports.sweeping import SweepStore
from jobs.ports.tenancy import TenantStore
from jobs.ports.webhooks import WebhookStore


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow(Value):
    """A released task whose message is to be published. Of ids given at the same time the larger may appear first."""

    id: int
    message: Message
    released_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Value):
    """Where a message was published: topic name, topic id (changes when the topic is made anew), offset."""

    topic: str
    topic_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Value):
    """What a lease has spent so far; it prices the waste if the worker dies. Rides on the beat."""

    token: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader(Value):
    """Who schedules a scope (a pool). owner: "" when nobody does."""

    scope: str
    epoch: int
    owner: str


class End(NamedTuple):
    """How a job is to end. version: of its record, which must not have changed. manifest: URI of the published one.
    void: the rows of void tasks, added to the totals.
    """

    job: str
    version: int
    to: JobState
    reason: str
    manifest: str
    void: Usage


class JobStore(Protocol):
    """Jobs and their frozen inputs."""

    def create_job(self, job: Job, files: Sequence[InputFile]) -> Job:
        """Write the job; with an idempotency key that the tenant used before, the job made then is returned."""
        ...

    def create_jobs(self, wanted: Sequence[tuple[Job, Sequence[InputFile]]]) -> list[Job]:
        """As `create_job` for each, in one transaction. Raises Conflict, and then none is written."""
        ...

    def job_of_key(self, tenant: str, key: str) -> Job | None:
        """The job that a tenant's idempotency key made."""
        ...

    def jobs_of_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """As `job_of_key` for each (tenant, key); those that made none are left out."""
        ...

    def job(self, job_id: str) -> Job:
        """The job with its folded totals. Raises NotFound."""
        ...

    def jobs_named(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """As `job` for each, by id; unknown ones are left out."""
        ...

    def find_job(self, text: str, tenant: str | None = None) -> Job:
        """By id, by an unambiguous beginning or end of an id (4 characters or more), or "last".

        Raises NotFound; its hint lists the candidates of an ambiguous text.
        """
        ...

    def files(self, job_id: str) -> list[InputFile]:
        """The frozen input list, in order."""
        ...

    def files_of(self, job_ids: Sequence[str]) -> dict[str, list[InputFile]]:
        """As `files` for each; in memory, so for jobs of few."""
        ...

    def jobs(self, *, tenant: str | None = None, limit: int = 100, after: str | None = None) -> list[Job]:
        """The newest first. after: the id to go on from (exclusive). Raises NotFound for an unknown one."""
        ...

    def children(self, job_id: str) -> list[Job]:
        """Retries of a job, oldest first."""
        ...

    def active_jobs(self, pool: str) -> list[Job]:
        """Jobs of a pool that are not at their end, the oldest first."""
        ...

    def pressing_jobs(self, pool: str, *, most: int, patience_s: float) -> list[Job]:
        """Of a pool's jobs that are not at their end, at most `most` of each priority, so that a pool of many thousand
        costs no more: first those that are cancelling or expiring, then the earliest due, paused ones last.

        Due is a job's deadline, or patience_s after its creation where that is earlier.
        """
        ...

    def job_states(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        """job → its state; unknown ones are left out."""
        ...

    def set_priority(self, job_id: str, priority: Priority) -> Job:
        """For tasks that are released from now on; raises WrongState for a job in a terminal state."""
        ...

    def set_state(self, job_id: str, *, expect: frozenset[JobState], to: JobState, reason: str = "") -> Job:
        """Compare-and-set of the state; terminal states also set `finished_at`. Raises WrongState."""
        ...

    def finalise(self, job_id: str, *, version: int, to: JobState, reason: str, manifest: str, void: Usage) -> bool:
        """job → final, guarded by its version and by all tasks being terminal and planned; False if it lost.

        Folds what is left of the job's inbox first, so that its totals are final. See `End`.
        """
        ...

    def finalise_all(self, ends: Sequence[End]) -> list[bool]:
        """As `finalise` for each, in one transaction."""
        ...

    def unsealed(self) -> list[Job]:
        """Jobs in a final state whose `_SUCCESS` is not known to be written: a process died in between."""
        ...

    def set_sealed(self, job_ids: Sequence[str]) -> None:
        """The `_SUCCESS` of each is written."""
        ...


class TaskStore(Protocol):
    """Tasks, their moves and what the moves carry with them."""

    def plan_segment(self, job_id: str, segment: int, tasks: Sequence[Task], *, last: bool) -> bool:
        """Insert all tasks of a segment, once. False if the segment was planned before. `last` sets job.planned."""
        ...

    def plan_segments(self, planned: Sequence[tuple[str, int, Sequence[Task], bool]]) -> list[bool]:
        """As `plan_segment` for each (job, segment, tasks, last), in one transaction."""
        ...

    def make(self, moves: Sequence[Move]) -> list[Answer]:
        """Carry out moves of one kind in one transaction; an answer for each, in order.

        A move that raises is retried alone, so that it cannot take the others with it.
        """
        ...

    def task(self, task_id: str) -> Task:
        """Raises NotFound."""
        ...

    def with_jobs(self, task_ids: Sequence[str]) -> dict[str, tuple[Task, Job]]:
        """These tasks as they stand now, by id, each with its job; unknown ones are left out."""
        ...

    def tasks(self, job_id: str, states: frozenset[TaskState], limit: int = 1000) -> list[Task]:
        """Tasks of a job in these states, in planning order (children where their parent stood)."""
        ...

    def heads(self, job_ids: Sequence[str]) -> dict[str, Task]:
        """The next queued task of each job, in planning order; jobs without one are left out."""
        ...

    def with_open_tasks(self, job_ids: Sequence[str]) -> set[str]:
        """Those of the jobs of which a task is not at its end."""
        ...

    def released(self, pool: str) -> list[Task]:
        """Released tasks of a pool, in the order of their release. `priority`: what each was released with."""
        ...

    def task_counts(self, job_id: str) -> dict[TaskState, int]:
        """Tasks by state."""
        ...

    def beat(self, owner: str, progress: Sequence[Progress], lease_s: float) -> dict[str, JobState]:
        """Extend the leases of these tokens and note their progress.

        Answers, for each token that is still held, the state of its job: so the worker learns of pause and cancel.
        """
        ...

    def overdue(self, pool: str) -> list[tuple[Task, Usage]]:
        """Leased tasks of a pool past `lease_until`, with the progress they last reported."""
        ...

    def leased_by(self, owner: str) -> list[tuple[Task, Usage]]:
        """Leased tasks of an owner, with the progress they last reported."""
        ...

    def owners(self) -> list[str]:
        """Owners of leased tasks."""
        ...

    def parts(self, job_id: str) -> Iterator[Part]:
        """The parts that count, in planning order of their tasks."""
        ...

    def parts_of(self, job_ids: Sequence[str]) -> dict[str, list[Part]]:
        """As `parts` for each; in memory, so for jobs of few."""
        ...

    def open_reservations(self, job_id: str) -> dict[str, int]:
        """task → pico-units, of all open reservations."""
        ...


class OutboxStore(Protocol):
    """Messages on their way into the queue."""

    def pending(self, limit: int, pool: str | None = None) -> list[OutboxRow]:
        """Not yet published, oldest first."""
        ...

    def published(self, places: Mapping[int, Place]) -> None:
        """Note where messages went: outbox id → place."""
        ...

    def silent(self, pool: str, older_than_s: float) -> list[tuple[Task, Place]]:
        """Tasks still released this long after their message was published, and where that was."""
        ...


class FleetStore(Protocol):
    """Who leads a pool, and how fast its model was when last seen."""

    def lead(self, scope: str, owner: str) -> Leader:
        """Take the leadership of a scope: epoch + 1, whoever held it."""
        ...

    def leader(self, scope: str) -> Leader: ...

    def note_speed(self, model: str, *, rows_per_s: float, output_tokens_per_s: float) -> None: ...

    def speed(self, model: str) -> tuple[float, float] | None:
        """(rows/s, output tokens/s) of one worker when last measured, or None."""
        ...


class Store(
    JobStore,
    TaskStore,
    OutboxStore,
    LedgerStore,
    PostingStore,
    RateStore,
    PriceStore,
    FleetStore,
    SweepStore,
    CensusStore,
    TenantStore,
    FilingStore,
    WebhookStore,
    Protocol,
):
    """All of the database behind one connection pool and one group committer."""

    def now(self) -> float:
        """The database's clock."""
        ...

    def close(self) -> None: ...
