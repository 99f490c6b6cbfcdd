"""Rate limits by the generic cell rate algorithm, in its form with costs. Pure; times are whole nanoseconds.

All of a limit's state is one number, the *theoretical arrival time* (tat): when everything that was taken will have
flowed off at the limit's rate. At or before now, nothing is missing. What is taken moves it on; it may lie ahead of now
by no more than the burst takes to flow off. So a limit costs one number, which needs no sweeping, and whoever dies with
something taken leaves nothing behind: time passes. (ITU-T I.371, annex A, with the bucket's level as a time.)
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.model import Value

MINUTE_NS = 60 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Value):
    """per_minute, burst: units, from 1. After a pause, `burst` of them may be taken at once."""

    per_minute: int
    burst: int

    def ns(self, units: int) -> int:
        """How long so many take to flow off, rounded up: what is taken in small pieces is never more."""
        return -(-units * MINUTE_NS // self.per_minute)

    @property
    def reach_ns(self) -> int:
        """How far the tat may lie ahead. A nanosecond for each unit makes up for the rounding; it lets none through."""
        unit_ns = MINUTE_NS // self.per_minute
        return self.burst * MINUTE_NS // self.per_minute + min(self.burst, unit_ns // 2)


@dataclass(frozen=True, slots=True)
class Later(Value):
    """A refusal. wait_ns: until the same would be granted, were nothing else taken; None where it is past the burst."""

    wait_ns: int | None


def a_minute(limit: int) -> Rate:
    """So many a minute, all of which may be taken at once."""
    return Rate(per_minute=limit, burst=limit)


def take(tat: int, now: int, cost: int, rate: Rate) -> int | Later:
    """The new tat, or why not. cost: units."""
    if cost > rate.burst:
        return Later(None)
    new = charge(tat, now, cost, rate)
    over = new - now - rate.reach_ns
    return Later(over) if cost and over > 0 else new


def charge(tat: int, now: int, cost: int, rate: Rate) -> int:
    """Take what was used already, whether or not there is room: the next ones wait for it."""
    return max(tat, now) + rate.ns(cost)


def give_back(tat: int, units: int, rate: Rate) -> int:
    """Units that were taken and not used; rounded so that nothing is gained."""
    return tat - units * MINUTE_NS // rate.per_minute


def standing(tat: int, now: int, rate: Rate) -> tuple[int, int]:
    """(units that could be taken at once, nanoseconds until all of the burst can)."""
    ahead = max(0, tat - now)
    room = (rate.reach_ns - ahead) * rate.per_minute // MINUTE_NS
    return max(0, min(rate.burst, room)), ahead
