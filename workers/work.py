"""A task in a worker's hands: its rows, what came back so far, and what is still inside the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from jobs import ranges
from jobs.feed import Feedable
from jobs.model import Job, Outcome, Task, Usage
from jobs.ports.engine import EngineRequest, EngineResult, RequestProfile
from jobs.ports.rows import OpenRows
from jobs.ranges import Ranges

SLOT_BITS = 20
"""Rows of a task are numbered below 2**20 (the largest task has 65,536); the task's slot stands above them."""

SUSPECT_WAIT_S = 30.0
"""After so long a task under suspicion goes before requests."""


@dataclass(slots=True, kw_only=True)
class Spent:
    """Tokens that the engine reported for a task, finished rows and aborted ones."""

    rows: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, result: EngineResult) -> None:
        self.rows += 1
        self.input_tokens += result.input_tokens - result.cached_tokens
        self.cached_tokens += result.cached_tokens
        self.output_tokens += result.output_tokens

    def usage(self) -> Usage:
        return Usage(
            rows=self.rows,
            input_tokens=self.input_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """Mutable on purpose: it is touched for every row, by the worker's loop alone.

    ending: what unfinished rows become (the job is cancelled or expired); None: they are left for a child.
    inside: rows in the engine; lifted: those of them that entered as if of a more urgent rank.
    row_tokens: of one row, as planned. stopping: no further row is fed. lost: the lease is over; nothing of it is
    settled, but it stays in sight until the engine has let go of its rows.
    """

    job: Job
    task: Task
    rows: OpenRows
    slot: int
    opened_s: float
    results: list[EngineResult | None] = field(init=False)
    todo: Sequence[int] = field(init=False)
    row_tokens: float = field(init=False)
    fed: int = 0
    inside: set[int] = field(default_factory=set)
    lifted: set[int] = field(default_factory=set)
    finished: Spent = field(default_factory=Spent)
    aborted: Spent = field(default_factory=Spent)
    stopping: bool = False
    lost: bool = False
    ending: Outcome | None = None

    def __post_init__(self) -> None:
        self.results = [None] * self.rows.size
        self.row_tokens = self.task.tokens / max(1, self.task.rows)
        faults = self.rows.faults
        self.todo = [i for i in range(self.rows.size) if i not in faults] if faults else range(self.rows.size)

    @property
    def unfed(self) -> int:
        return 0 if self.stopping else len(self.todo) - self.fed

    @property
    def at_rest(self) -> bool:
        """Nothing inside the engine and nothing to feed: it can be settled."""
        return not self.inside and self.unfed == 0

    @property
    def whole(self) -> bool:
        """Every row has a result or a fault, and the job is not ending."""
        return self.ending is None and not self.unfinished()

    def feedable(self, now_s: float) -> Feedable:
        return Feedable(
            rank=self.task.priority.rank,
            opened=self.slot,
            unfed=self.unfed,
            in_flight=len(self.inside),
            suspect=self.task.suspect,
            waited_s=now_s - self.opened_s,
            job=self.job.id,
            row_tokens=self.row_tokens,
            lifted=len(self.lifted),
        )

    def take(self, most: int, rank: int | None = None) -> tuple[RequestProfile, list[EngineRequest]]:
        """The next rows to feed, at most `most`: as many neighbours as share one profile. rank: they enter as of."""
        first = self.todo[self.fed]
        profile = self.rows.profile(first)
        base = self.slot << SLOT_BITS
        requests: list[EngineRequest] = []
        for index in self.todo[self.fed : self.fed + most]:
            prompt = self.rows.prompts[index]
            if self.rows.profile(index) is not profile:
                break
            assert prompt is not None, "a row without a prompt must be a fault"
            requests.append(EngineRequest(base | index, prompt))
            self.inside.add(index)
        self.fed += len(requests)
        if rank is None or rank == self.task.priority.rank:
            return profile, requests
        self.lifted.update(request.id - base for request in requests)
        return replace(profile, key=f"{profile.key}/{rank}", priority=rank), requests

    def ids_inside(self) -> list[int]:
        return [self.slot << SLOT_BITS | index for index in self.inside]

    def file(self, index: int, result: EngineResult) -> None:
        """A row came back."""
        self.inside.discard(index)
        self.lifted.discard(index)
        if result.finish_reason == "abort":
            self.aborted.add(result)
        else:
            self.results[index] = result
            self.finished.add(result)

    def unfinished(self) -> list[int]:
        """Row indices that have neither a result nor a fault."""
        return [i for i in self.todo if self.results[i] is None]

    def place(self, indices: Sequence[int]) -> Ranges:
        """Row indices as ranges of the task."""
        return ranges.at(self.task.ranges, indices)


def suspects_go(works: Iterable[Work], now_s: float) -> bool:
    """Whether nothing else may enter: rows under suspicion run, or have waited long for it. A death must be theirs."""
    suspects = [work for work in works if work.task.suspect]
    return any(work.inside or (work.unfed and now_s - work.opened_s > SUSPECT_WAIT_S) for work in suspects)
