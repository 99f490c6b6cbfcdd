"""What is asked of the database before files of dead leases are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from jobs.model import Job
from jobs.sweeping import LeaseEnd


class SweepStore(Protocol):
    """Part of the store."""

    def every_job(self) -> Iterator[tuple[Job, bool]]:
        """All jobs by id, each with whether its `_SUCCESS` is known to be written."""
        ...

    def lease_ends(self, task_ids: Sequence[str]) -> dict[str, LeaseEnd]:
        """By task; tasks that are not known are left out."""
        ...
