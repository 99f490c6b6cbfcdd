"""Which job's next task is released to a pool's topics: strict rank, with a reserved share for the lower ranks.

Inside a rank the job with the earliest due time goes first. Weighted fairness between tenants belongs into
`_line`: it alone decides between jobs of one rank.

Bounded wait, property-tested (n lower ranks that wait, share s): as long as releases go on, at most
n × (ceil(1 / s) + 1) of them lie between two releases of a rank that waits; and no job waits behind one that was
created more than `patience_s` later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.model import Job, Value
from jobs.release import ReleasePolicy

JOBS_OF_A_RANK = 512
"""So many jobs of each priority are looked after at a time, the earliest due first: a tick must not grow with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PickPolicy(Value):
    """lower_share: of the releases, for ranks below the most urgent one that waits. patience_s: a job without a
    deadline is treated as due so long after its creation, so that deadlines cannot starve it.
    """

    lower_share: float = 0.1
    patience_s: float = 86_400.0
    release: ReleasePolicy = ReleasePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Value):
    """A running job with queued tasks. rows: of its next tasks, in order."""

    job: str
    rank: int
    due: float
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PickState(Value):
    """debt: releases that the lower ranks are owed; skipped: how many went to others since a rank's last, while it
    waited.
    """

    debt: float = 0.0
    skipped: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Round:
    """The picker's scratch. released: by rank, how many tasks and how many rows in them. lines: by rank, the jobs that
    have more, the first one first. taken: tasks by job.
    """

    released: dict[int, tuple[int, int]]
    lines: dict[int, deque[Waiting]]
    workers: int
    policy: PickPolicy
    taken: dict[str, int] = field(default_factory=dict)

    @property
    def ranks(self) -> list[int]:
        """Those that wait, the most urgent first."""
        return sorted(rank for rank, line in self.lines.items() if line)

    def room(self, rank: int) -> bool:
        """Whether a rank may be released in its turn: what is more urgent, or as urgent, does not fill the stretch."""
        return self._room([held for other, held in self.released.items() if other <= rank])

    def reserved_room(self, rank: int) -> bool:
        """The same for a release out of the reserved share: only the rank's own count."""
        return self._room([self.released.get(rank, (0, 0))])

    def _room(self, held: Sequence[tuple[int, int]]) -> bool:
        tasks, rows = sum(tasks for tasks, _ in held), sum(rows for _, rows in held)
        return not self.policy.release.enough(tasks, rows, self.workers)

    def take(self, rank: int) -> str:
        """The next task of the first in line; its job."""
        one = self.lines[rank][0]
        at = self.taken.get(one.job, 0)
        tasks, rows = self.released.get(rank, (0, 0))
        self.released[rank] = (tasks + 1, rows + one.rows[at])
        self.taken[one.job] = at + 1
        if at + 1 == len(one.rows):
            self.lines[rank].popleft()
        return one.job


def due_of(job: Job, policy: PickPolicy) -> float:
    """When a job is due: its deadline, or the end of patience with it."""
    patient = job.created_at + policy.patience_s
    return patient if job.deadline_at is None else min(job.deadline_at, patient)


def pick(
    waiting: Sequence[Waiting],
    released: Mapping[int, Sequence[int]],
    state: PickState,
    policy: PickPolicy,
    workers: int,
) -> tuple[list[str], PickState]:
    """The jobs whose next task is released, in order (a job as often as it releases), and the state afterwards.

    released: rows of the released and not yet leased tasks, by rank.
    """
    now = _Round(
        released={rank: (len(rows), sum(rows)) for rank, rows in released.items()},
        lines={rank: _line([one for one in waiting if one.rank == rank]) for rank in {one.rank for one in waiting}},
        workers=workers,
        policy=policy,
    )
    picks: list[str] = []
    while len(picks) < policy.release.batch:
        ranks = now.ranks
        rank = _rank(ranks, state, now)
        if rank is None:
            break
        picks.append(now.take(rank))
        state = _after(state, rank, ranks, policy)
    return picks, state


def _rank(ranks: Sequence[int], state: PickState, now: _Round) -> int | None:
    """Whose turn it is, or None where nothing has room."""
    if not ranks:
        return None
    lower = [rank for rank in ranks[1:] if now.reserved_room(rank)]
    if state.debt >= 1 and lower:
        return max(lower, key=lambda rank: (state.skipped.get(rank, 0), -rank))
    return ranks[0] if now.room(ranks[0]) else None


def _line(waiting: Sequence[Waiting]) -> deque[Waiting]:
    """Of one rank: the earliest due first."""
    return deque(sorted((one for one in waiting if one.rows), key=lambda one: (one.due, one.job)))


def _after(state: PickState, rank: int, open_ranks: Sequence[int], policy: PickPolicy) -> PickState:
    top, lower = min(open_ranks), {other for other in open_ranks if other > min(open_ranks)}
    if rank != top:
        debt = state.debt - 1
    elif lower:
        debt = min(round(state.debt + policy.lower_share, 9), 2.0)  # a lower rank without room saves up no flood
    else:
        debt = 0.0
    skipped = {other: state.skipped.get(other, 0) + 1 for other in lower if other != rank}
    return PickState(debt=max(0.0, debt), skipped=skipped)
