"""Finds stored files that are dead (deleted, expired, or of an upload that never ended), and deletes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from infra.clocks import CROCKFORD, time_of
from infra.data.sweeping import Skipped
from jobs.errors import NightmillError
from jobs.ports.objects import Objects
from jobs.ports.store import Store
from jobs.sweeping import Dead, Leftover, dead_file, orphan

_UPLOAD = re.compile(rf"(?P<file>file-[{CROCKFORD}]{{26}})\.[a-z]+")
_DEAD, _LISTED = 10_000, 500  # looked at in one go
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class FileSweeper:
    """folder: URI of a tenant's own objects. older_than_s: how long a file must have been dead.

    keep_s: how long an idempotency key is remembered, and so an upload may be begun again under the id it had.
    """

    store: Store
    objects: Objects
    folder: Callable[[str], str]
    older_than_s: float
    keep_s: float
    skipped: list[Skipped] = field(default_factory=list)

    def find(self) -> Iterator[list[Dead]]:
        """What may go, some at a time."""
        for some in _chunks(self.store.dead_files(self.older_than_s), _DEAD):
            reading = self._reading()  # after these were found dead
            if found := [gone for file in some if (gone := dead_file(file, reading))]:
                yield found
        for tenant in self.store.tenants():
            try:
                orphans = list(self._orphans(f"{self.folder(tenant.name)}/files/"))
            except NightmillError as error:
                self.skipped.append(Skipped(job=f"files of {tenant.name}", error=error))
                continue
            if orphans:
                yield orphans

    def delete(self, found: list[Dead]) -> None:
        """The bytes, then the records: whoever dies in between leaves a record, and the next sweep goes on with it."""
        self.objects.delete_many([file.uri for file in found])
        self.store.forget_files([file.file for file in found if file.file])

    def _reading(self) -> frozenset[str]:
        """Inputs of the jobs that are not published yet."""
        jobs = self.store.every_job()
        return frozenset(job.spec.input for job, sealed in jobs if not (sealed and job.state.terminal))

    def _orphans(self, folder: str) -> Iterator[Dead]:
        now, older_than_s = self.store.now(), self.older_than_s + self.keep_s
        for some in _chunks(self.objects.list(folder), _LISTED):
            names = {facts: _UPLOAD.fullmatch(facts.uri[len(folder) :]) for facts in some}
            ids = {facts: name["file"] for facts, name in names.items() if name}
            known = self.store.have_records(list(ids.values()))
            for facts, file_id in ids.items():
                left = Leftover(uri=facts.uri, size=facts.size)
                gone = orphan(left, chosen_at=time_of(file_id), now=now, older_than_s=older_than_s)
                if file_id not in known and gone is not None:
                    yield gone


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
