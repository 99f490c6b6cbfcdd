"""Finds what dead leases left in the result folders of all jobs, and deletes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from infra.data.sink import VOID, parts_folder
from jobs.errors import NightmillError
from jobs.model import Job, Value
from jobs.ports.objects import Objects
from jobs.ports.store import Store
from jobs.sweeping import Dead, Leftover, dead

_PART = re.compile(r"(?P<task>[^/]+)-(?P<token>[0-9a-z]+)\.parquet")
_UNFINISHED = re.compile(r"(?:.*/)?\.[^/]*\.(?:[0-9a-f]{16}\.tmp|[A-Z2-7]+\.upload)")
"""Hidden names of both stores (infra/objects)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped(Value):
    """A job whose folder could not be looked at."""

    job: str
    error: NightmillError


@dataclass(slots=True, kw_only=True)
class Sweeper:
    """Looks through the jobs of one database; folders of jobs that it does not know are left alone.

    older_than_s: how long a part must have been useless. skipped: what could not be looked at.
    """

    store: Store
    objects: Objects
    older_than_s: float
    skipped: list[Skipped] = field(default_factory=list)

    def find(self) -> Iterator[list[Dead]]:
        """What may go, job by job; jobs without any are left out."""
        for job, sealed in self.store.every_job():
            try:
                found = self._of(job, sealed=sealed)
            except NightmillError as error:
                self.skipped.append(Skipped(job=job.id, error=error))
                continue
            if found:
                yield found

    def delete(self, found: list[Dead]) -> None:
        """Delete what `find` gave."""
        self.objects.delete_many([file.uri for file in found])

    def _of(self, job: Job, *, sealed: bool) -> list[Dead]:
        files = list(self._files(job))  # before the leases are asked for
        leases = self.store.lease_ends(sorted({file.task for file in files if file.task}))
        now = self.store.now()
        return list(dead(files, leases, job=job, sealed=sealed, now=now, older_than_s=self.older_than_s))

    def _files(self, job: Job) -> Iterator[Leftover]:
        parts = f"{parts_folder(job)}/"
        for facts in self.objects.list(f"{job.folder}/", unfinished=True):
            if _UNFINISHED.fullmatch(facts.uri):
                yield Leftover(uri=facts.uri, size=facts.size)
            elif facts.uri.startswith(parts) and (name := _PART.fullmatch(facts.uri[len(parts) :])):
                token = "" if name["token"] == VOID else name["token"]
                yield Leftover(uri=facts.uri, size=facts.size, task=name["task"], token=token)
