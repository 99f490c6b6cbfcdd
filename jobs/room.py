"""How much unfed work a worker holds: what its engine can start soon, in tokens.

Less, and the engine waits for a hand-over; more, and work lies idle with one worker that another would have begun.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.model import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomPolicy(Value):
    """cap: rows in the engine at most. kv_tokens: room of its KV cache, 0 where there is none. soon_s: covers a
    hand-over: the look at the room, the lease, the reading.
    """

    cap: int
    kv_tokens: int = 0
    soon_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(Value):
    """What was seen of the engine. tokens_per_s: that it started in the last seconds. row_tokens: of one row, of the
    work at hand; both estimated as the planner does.
    """

    tokens_per_s: float = 0.0
    row_tokens: float = 1.0


def wanted_tokens(pace: Pace, policy: RoomPolicy) -> int:
    """Of one priority: what starts in `soon_s`, and at least two windows of rows, since all that are inside may end at
    once and the pace is not known from the start. Where twice the KV cache holds less, that: fewer run there (planned
    tokens count shared prefixes again, the cache does not).
    """
    windows = 2 * policy.cap * pace.row_tokens
    least = min(windows, 2 * policy.kv_tokens) if policy.kv_tokens else windows
    return max(1, round(max(least, policy.soon_s * pace.tokens_per_s)))
