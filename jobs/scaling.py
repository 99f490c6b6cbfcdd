"""How many workers a pool should have: a pure rule over what waits, and what was seen before."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.model import Value
from jobs.pools import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand(Value):
    """What a pool has before it. jobs: running ones; rows_left: of them; workers: that the pool has now.

    rows_per_s: of one worker when last measured, None while unknown.
    asked: requests came since the last look, or are in hand. short: some were refused for want of room.
    """

    jobs: int
    rows_left: int
    workers: int
    rows_per_s: float | None = None
    asked: bool = False
    short: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePolicy(Value):
    """idle_s: so long without work before a pool shrinks to its least. backlog_s: what waits should be done in it.

    blind_rows: a worker's share of what waits while its speed is unknown.
    """

    idle_s: float = 300.0
    backlog_s: float = 300.0
    blind_rows: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleState(Value):
    """idle_since: monotonic seconds, None while there is work."""

    idle_since: float | None = None


def desired(demand: Demand, pool: Pool, state: ScaleState, policy: ScalePolicy, now: float) -> tuple[int, ScaleState]:
    """(workers to have, state afterwards). It grows at once, and shrinks only when idle: starting an engine is dear.

    Requests that found no room bring one worker more; whoever asks says so only while none is starting.
    """
    if demand.jobs or demand.asked:
        for_requests = demand.workers + 1 if demand.short else demand.workers
        return _within(max(1, for_requests, _for_backlog(demand, policy)), pool), ScaleState()
    since = now if state.idle_since is None else state.idle_since
    rested = now - since >= policy.idle_s
    return _within(0 if rested else demand.workers, pool), ScaleState(idle_since=since)


def _for_backlog(demand: Demand, policy: ScalePolicy) -> int:
    share = policy.blind_rows if not demand.rows_per_s else demand.rows_per_s * policy.backlog_s
    return -(-demand.rows_left // max(1, int(share)))


def _within(workers: int, pool: Pool) -> int:
    return max(pool.min_workers, min(pool.max_workers, workers))


def backoff_s(failures: int, longest_s: float) -> float:
    """Pause before the next start after so many failures in a row: 1 s, doubled each time."""
    return 0.0 if failures <= 0 else min(longest_s, 2.0 ** min(failures - 1, 30))
