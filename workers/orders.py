"""What the beat learned of a worker's leases, carried out on its open tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.model import JobState, Outcome
from jobs.ports.engine import Engine
from workers.work import Work

_UNFINISHED = {JobState.CANCELLING: Outcome.CANCELLED, JobState.EXPIRING: Outcome.EXPIRED}


def obey(engine: Engine, works: Sequence[Work], answer: Mapping[str, JobState | None]) -> list[Work]:
    """answer: the states of their jobs, by token; None: the lease is lost. Those that were just lost."""
    told = [work for work in works if work.task.token in answer and not work.lost]
    return [work for work in told if _obey(engine, work, answer[str(work.task.token)])]


def _obey(engine: Engine, work: Work, state: JobState | None) -> bool:
    if state is None:
        work.lost = work.stopping = True
        engine.abort(work.ids_inside())
    elif state in _UNFINISHED and work.ending is None:
        work.ending = _UNFINISHED[state]
        work.stopping = True
        engine.abort(work.ids_inside())
    elif state is JobState.PAUSED:
        work.stopping = True
    return work.lost
