"""Which open task's rows enter the engine next: rank first, then the jobs of a rank in turns; suspects run alone.

A more urgent row never waits for less urgent ones inside: the engine starts what waits in it by rank. Nothing starves
either: a rank that waits below a more urgent one has a reserved share of the seats. Its rows enter them *lifted*, as if
they were of that more urgent rank, or they would wait inside the engine for ever. Where an engine has too few seats to
share, a rank that so many rows of others have passed (`FeedPolicy.patience_rows`) goes next.

Inside a rank the job that was served the fewest tokens goes next, for at least a chunk of rows, so that prefixes which
neighbours share are still in the cache (deficit round robin: Shreedhar and Varghese 1995; a job that joins begins level
with the least served, as in VTC, arXiv 2401.00588).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from jobs.model import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedable(Value):
    """An open task as the feeder sees it.

    opened: ascending in the order of opening. unfed: rows not yet in the engine; in_flight: rows inside it now; lifted:
    how many of those entered lifted. row_tokens: of one row, estimated.
    """

    rank: int
    opened: int
    unfed: int
    in_flight: int
    suspect: bool = False
    waited_s: float = 0.0
    job: str = ""
    row_tokens: float = 1.0
    lifted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPolicy(Value):
    """cap: rows of a rank and all more urgent ones in the engine at most. chunk: rows of one job in its turn. jobs: so
    many take turns at most. suspect_wait_s: after so long a suspect task no longer lets others go before it.
    lower_share: of the seats, for ranks below the most urgent one that waits.
    """

    cap: int
    chunk: int = 64
    jobs: int = 4
    suspect_wait_s: float = 30.0
    lower_share: float = 0.1

    @classmethod
    def for_engine(cls, max_num_seqs: int, lower_share: float = 0.1) -> FeedPolicy:
        """1.75 × max_num_seqs: the engine always finds a row waiting when one ends (measured: 1.5–2 × fills it)."""
        return cls(cap=max(2, max_num_seqs + -(-max_num_seqs * 3 // 4)), lower_share=lower_share)

    @property
    def least_room(self) -> int:
        """Below this much room it is not worth sending a chunk: fewer, fuller messages to the engine's process."""
        return max(1, min(32, self.cap // 8))

    def patience_rows(self, ranks: int) -> int:
        """Rows of others that a rank lets pass, where so many ranks wait."""
        return max(self.cap, (ranks - 1) * ceil(1 / self.lower_share))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState(Value):
    """What the feeder remembers. served: tokens, by job. turns: the job whose turn it is and the rows left of it, by
    rank. passed: rows of others that entered while a rank waited with none of its own lifted, by rank.
    """

    served: Mapping[str, float] = field(default_factory=dict)
    turns: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    passed: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed(Value):
    """What enters next: so many rows of the task at `index`, in the engine's eyes of rank `rank`."""

    index: int
    rows: int
    rank: int


def next_chunk(
    tasks: Sequence[Feedable], policy: FeedPolicy, state: FeedState | None = None
) -> tuple[Feed | None, FeedState]:
    """What to feed now, None for nothing, and the state afterwards."""
    state = state or FeedState()
    suspect = _suspect_next(tasks, policy)
    if suspect is not None:
        return _alone(tasks, suspect, policy), state
    waiting = sorted({task.rank for task in tasks if task.unfed and not task.suspect})
    if not waiting:
        return None, state
    room = policy.cap - _inside(tasks, waiting[0])
    if room < (policy.least_room if room < policy.cap else 1):
        return None, state
    rank = _whose(tasks, waiting, policy, state)
    job, turn = _turn(tasks, rank, policy, state)
    index = min(_open(tasks, rank, job), key=lambda i: tasks[i].opened)
    rows = min(room, turn, tasks[index].unfed, max(1, seats_left(tasks, rank, policy)))
    feed = Feed(index=index, rows=rows, rank=waiting[0])
    return feed, _after(tasks, state, feed, waiting, turn)


def seats_left(tasks: Sequence[Feedable], rank: int, policy: FeedPolicy) -> int:
    """Seats that a rank may still take beside those reserved for lower ranks that wait."""
    seats = policy.cap
    waiting = sorted({task.rank for task in tasks if task.unfed and not task.suspect})
    for number, other in enumerate(waiting, 1):
        lower = len(waiting) - number  # a seat at least for each of them
        own = max(1, min(seats - lower, round(seats * (1 - policy.lower_share)))) if lower else seats
        if other == rank:
            return own - sum(task.in_flight if number == 1 else task.lifted for task in tasks if task.rank == rank)
        seats -= own
    return policy.cap


def _suspect_next(tasks: Sequence[Feedable], policy: FeedPolicy) -> int | None:
    """The suspect that is inside, or whose turn it is; None: others go first, until one has waited too long."""
    suspects = [i for i, task in enumerate(tasks) if task.suspect and (task.unfed or task.in_flight)]
    inside = [i for i in suspects if tasks[i].in_flight]
    others = any(task.unfed and not task.suspect for task in tasks)
    impatient = any(tasks[i].waited_s > policy.suspect_wait_s for i in suspects)
    if not suspects or (others and not inside and not impatient):
        return None
    return inside[0] if inside else min(suspects, key=lambda i: (tasks[i].rank, tasks[i].opened))


def _alone(tasks: Sequence[Feedable], index: int, policy: FeedPolicy) -> Feed | None:
    """A suspect enters an empty engine, and nothing joins it."""
    task, inside = tasks[index], sum(other.in_flight for other in tasks)
    room = policy.cap - inside
    if inside > task.in_flight or not task.unfed or room < (policy.least_room if inside else 1):
        return None
    return Feed(index=index, rows=min(room, policy.chunk, task.unfed), rank=task.rank)


def _whose(tasks: Sequence[Feedable], waiting: Sequence[int], policy: FeedPolicy, state: FeedState) -> int:
    """The rank that goes next."""
    patience = policy.patience_rows(len(waiting))
    passed = [rank for rank in waiting[1:] if state.passed.get(rank, 0) >= patience]
    if passed:
        return max(passed, key=lambda rank: (state.passed[rank], -rank))
    seated = [rank for rank in waiting if seats_left(tasks, rank, policy) > 0]
    return (seated or waiting)[0]


def _inside(tasks: Sequence[Feedable], rank: int) -> int:
    """Rows inside that are as urgent as the rank, or more urgent, in the engine's eyes."""
    return sum(task.in_flight if task.rank <= rank else task.lifted for task in tasks)


def _open(tasks: Sequence[Feedable], rank: int, job: str | None = None) -> list[int]:
    return [
        i
        for i, task in enumerate(tasks)
        if task.rank == rank and task.unfed and not task.suspect and job in {None, task.job}
    ]


def _turn(tasks: Sequence[Feedable], rank: int, policy: FeedPolicy, state: FeedState) -> tuple[str, int]:
    """The job whose turn it is in a rank, and the rows left of its turn."""
    opened = sorted(_open(tasks, rank), key=lambda i: tasks[i].opened)
    jobs = list(dict.fromkeys(tasks[i].job for i in opened))[: policy.jobs]
    job, left = state.turns.get(rank, ("", 0))
    if job in jobs and left > 0:
        return job, left
    least = _least(state.served, jobs)
    return min(jobs, key=lambda name: state.served.get(name, least)), policy.chunk


def _least(served: Mapping[str, float], jobs: Iterable[str]) -> float:
    """Where a job begins that was not served yet."""
    return min([served[job] for job in jobs if job in served], default=0.0)


def _after(tasks: Sequence[Feedable], state: FeedState, feed: Feed, waiting: Sequence[int], turn: int) -> FeedState:
    fed = tasks[feed.index]
    served = {task.job: state.served[task.job] for task in tasks if task.job in state.served}
    rivals = {task.job for task in tasks if task.rank == fed.rank and not task.suspect}
    served |= dict.fromkeys(rivals - served.keys(), _least(served, rivals))
    served[fed.job] += feed.rows * fed.row_tokens
    passed = {
        rank: state.passed.get(rank, 0) + feed.rows
        for rank in waiting[1:]
        if rank != fed.rank and not any(task.lifted for task in tasks if task.rank == rank)
    }
    return FeedState(
        served=served,
        turns={**state.turns, fed.rank: (fed.job, turn - feed.rows)},
        passed=passed,
    )
