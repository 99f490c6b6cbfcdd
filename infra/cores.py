"""Which cores a process's threads run on.

An interpreter lets one of its threads run at a time. Where they wake on different cores, handing that right over costs
about as much as what they do: batches of one line took 11.3 ms of CPU where two cores were free to choose from, 7.9
where each process had one (docs/benchmarks.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Kept:
    """given: what the process had before. nth: as `keep_to_one` was told; None: it was not."""

    given: list[int] = field(default_factory=list)
    nth: int | None = None


_kept = _Kept()


def allowed_cpus() -> list[int]:
    """The CPUs that a child of this process may use; none where the system does not say."""
    return _kept.given or (sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [])


def keep_to_one(nth: int) -> None:
    """Let this thread, and all that it starts from now on, run on one of the cores. nth: modulo how many there are.

    What is started inside `all_cores` may use all of them.
    """
    if cores := allowed_cpus():
        _kept.given, _kept.nth = cores, nth
        os.sched_setaffinity(0, {cores[nth % len(cores)]})


def next_one() -> int | None:
    """What to tell `keep_to_one` in a process beside this one; None where this one has all cores.

    It lies half of them away: neighbours are often two threads of one core.
    """
    return None if _kept.nth is None else _kept.nth + max(1, len(_kept.given) // 2)


@contextmanager
def all_cores() -> Iterator[None]:
    """A process that is started here may use all cores that ours was given: it has those of the thread that made it."""
    if _kept.nth is None:
        yield
        return
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _kept.given)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)
