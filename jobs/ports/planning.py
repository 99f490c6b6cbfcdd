"""Planning and publishing: a job's input becomes tasks, its parts become a result folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.model import InputFile, Job, JobState, Part, Task, Usage, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegment(Value):
    """All tasks of one segment. last: no further segment follows."""

    tasks: tuple[Task, ...]
    last: bool


class SegmentPlanner(Protocol):
    """Plans segment by segment in bounded memory. The same (job, segment) always gives the same tasks and bytes."""

    def plan(
        self, job: Job, files: Sequence[InputFile], segment: int, *, ending: bool, rows_per_s: float | None
    ) -> PlannedSegment:
        """ending: the rows will not be generated, so nothing is ordered. rows_per_s: one worker's measured speed.

        Raises InputChanged.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Final(Value):
    """How a job ended, for its manifest. usage, amount_pico: of all its rows, void ones included."""

    state: JobState
    reason: str
    usage: Usage
    amount_pico: int


class Publisher(Protocol):
    """The finaliser's file work, of several jobs. Every step may be repeated after a crash, with the same bytes."""

    def publish_all(self, ends: Sequence[tuple[Job, Iterable[Part], Final]]) -> list[str]:
        """Of each `part-NNNNN.parquet` …, then `_manifest.json`; the manifests' URIs."""
        ...

    def seal_all(self, jobs: Sequence[Job]) -> None:
        """`_SUCCESS`, after the database has the jobs' ends; then what readers do not need is removed."""
        ...
