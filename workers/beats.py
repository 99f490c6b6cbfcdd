"""The worker's heartbeat: one statement renews all its leases, brings its progress and learns what to stop."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from jobs.errors import DatabaseUnavailable
from jobs.ports.store import TaskStore
from workers.worker import Worker

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """beat_s: how often; lease_s: how long a lease lasts from then on.

    A worker whose engine hangs is ended by the engine port's own watch on moving tokens; until then it may renew. A
    beat that the database does not answer is left out: a lease outlasts several.
    """

    store: TaskStore
    worker: Worker
    owner: str
    beat_s: float = 5.0
    lease_s: float = 30.0

    def step(self) -> None:
        progress = self.worker.progress()
        if not progress:
            return
        try:
            held = self.store.beat(self.owner, progress, self.lease_s)
        except DatabaseUnavailable as error:
            log.warning("beat_unanswered", reason=error.sentence)
            return
        self.worker.heed({item.token: held.get(item.token) for item in progress})
