"""Rows on their way through a worker: opened from a task, prompted, settled into a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from jobs.model import Job, Outcome, Part, Task, Usage, Value
from jobs.ports.engine import EngineResult, Prompt, RequestProfile
from jobs.ranges import Ranges


class RowFault(NamedTuple):
    """Why a row never reaches the engine: `code` is its error_code."""

    code: str
    message: str


@dataclass(slots=True, kw_only=True)
class OpenRows:
    """A task's rows in memory, in the task's order, ready for the engine.

    prompts: None where `faults` has the row. profile_of: index into `profiles` for each row, or None: all use the
    first. echoes: by row, what its answer must repeat of its request (JSON), for those that have it. table: what the
    sink needs to write the rows (opaque to workers). positions: where each row lies in the task's ranges is its index,
    counted from 0.
    """

    size: int
    prompts: Sequence[Prompt | None]
    faults: Mapping[int, RowFault] = field(default_factory=dict)
    profiles: Sequence[RequestProfile] = ()
    profile_of: Sequence[int] | None = None
    echoes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    table: Any = None

    def profile(self, index: int) -> RequestProfile:
        return self.profiles[self.profile_of[index] if self.profile_of is not None else 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Value):
    """A written part (None when no row was finished), what its rows used, and the rows left for a child."""

    part: Part | None
    usage: Usage
    left: Ranges


class RowSource(Protocol):
    """Reads a task's rows and renders their prompts. Memory follows the task. Safe to call from several threads."""

    def open(self, job: Job, task: Task) -> OpenRows:
        """Rows that cannot be read or rendered are faults of their own and do not fail the task.

        Raises InputChanged when an input file is no longer what was frozen at submit.
        """
        ...


class Results(NamedTuple):
    """A leased task and what its rows came to, by row index; every row has a result or a fault."""

    job: Job
    task: Task
    rows: OpenRows
    results: Sequence[EngineResult | None]


class PartSink(Protocol):
    """Turns results into outcomes and one Parquet part. Safe to call from several threads."""

    def write(
        self,
        job: Job,
        task: Task,
        rows: OpenRows,
        results: Sequence[EngineResult | None],
        *,
        unfinished: Outcome | None,
    ) -> Settled:
        """Write the part of this lease (`task.token` is in its name), synced before returning.

        results: by row index; None where a row has none (faults get their error row). Rows without a result and
        without a fault become rows of outcome `unfinished`; if that is None they are left out, and come back in
        `Settled.left` as ranges of the task's ranges.
        """
        ...

    def shares(self, job: Job) -> bool:
        """Whether its parts may be written with those of others: they lie where one flush does for all."""
        ...

    def write_all(self, works: Sequence[Results]) -> list[Settled]:
        """As `write` for each; small ones, of jobs that share."""
        ...

    def write_void(self, job: Job, task: Task, outcome: Outcome, code: str | None, message: str | None) -> Settled:
        """The part of a task that was given up: all its rows with one outcome. Deterministic name and bytes."""
        ...
