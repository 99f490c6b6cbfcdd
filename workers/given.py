"""What a worker is given: its policy, and tasks whose rows are being read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from jobs.errors import NightmillError
from jobs.model import Job, Task, Usage, Value
from jobs.ports.rows import OpenRows
from jobs.retry import Backoff

OnFault = Callable[[Job, Task, Usage, NightmillError], None]
"""Of a task that cannot be read, written or committed, with what was spent on it: gives it up. A worker of a pool goes
on with the others.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPolicy(Value):
    """open_s: after so long a task takes no further row and commits what is finished; the rest goes to a child.

    drain_grace_s: how long rows inside the engine may still finish when the worker drains.
    poll_s: how long the loop waits for a finished row at most. soon_s: as in `RoomPolicy`.
    fruitless_deaths: after so many deaths of the engine in a row without one finished row, the fault is not in the
    rows (halving the fullest window down to its poisonous row takes fewer), and the worker gives up.
    lower_share: as in `FeedPolicy`.
    lends: it takes tasks only while it has no request. yield_s: once requests have left rows no room for so
    long, a task commits what is finished; the rest goes to a child.
    """

    open_s: float = 60.0
    drain_grace_s: float = 10.0
    poll_s: float = 0.05
    soon_s: float = 2.0
    lower_share: float = 0.1
    fruitless_deaths: int = 16
    restart: Backoff = Backoff(attempts=5)
    lends: bool = False
    yield_s: float = 10.0


@dataclass(slots=True, kw_only=True)
class Opening:
    """A leased task whose rows are being read."""

    job: Job
    task: Task
    rows: Future[OpenRows]
