"""The filing port: files, batches and remembered answers, all inside their tenant. Part of the database.

Every lookup names the tenant; what belongs to another is NotFound, with the same words as what never was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.filing import Batch, StoredFile
from jobs.model import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Value):
    """What is remembered of an idempotency key.

    digest: of method, path and body of the first request. resource: the id that the first request was to make, chosen
    before anything was made, so that who comes after a crash makes the same. answer: (status, body), or None while it
    is under way. mine: this call may act now, as the first or as the heir of one that died. claim: names this call's
    hold on the key; whoever takes over has another one.
    """

    digest: str
    resource: str
    answer: tuple[int, bytes] | None = None
    mine: bool = False
    claim: str = ""


class FileStore(Protocol):
    """Files."""

    def add_file(self, file: StoredFile) -> StoredFile:
        """Write the record, once its bytes are durable. The same id again returns the record that is there.

        A `created_at` of 0 is set by the database's clock. Raises NotFound where the id is another tenant's.
        """
        ...

    def add_files(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        """As `add_file` for each, in one transaction."""
        ...

    def file(self, file_id: str, tenant: str) -> StoredFile:
        """Raises NotFound, also for a deleted or expired one."""
        ...

    def files_named(self, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StoredFile]:
        """As `file` for each (id, tenant); unknown ones are left out."""
        ...

    def stored_files(
        self,
        tenant: str,
        *,
        purpose: str | None = None,
        after: str | None = None,
        limit: int = 100,
        newest: bool = True,
    ) -> list[StoredFile]:
        """In order of creation; after: the id to go on from (exclusive). Raises NotFound for an unknown one."""
        ...

    def delete_file(self, file_id: str, tenant: str) -> None:
        """Raises NotFound; Conflict while a batch that is not at its end reads it."""
        ...

    def dead_files(self, older_than_s: float = 0.0) -> Iterator[StoredFile]:
        """Of all tenants, those deleted or expired for so long, the longest dead first: the sweeper's work.

        One that a batch reads which is not at its end is left out: it may have expired under it.
        """
        ...

    def have_records(self, file_ids: Sequence[str]) -> set[str]:
        """Those of the ids that have a record, dead or alive."""
        ...

    def forget_files(self, file_ids: Sequence[str]) -> None:
        """Their bytes are gone, and now their records too. One that is not dead stays."""
        ...


class BatchStore(Protocol):
    """Batches."""

    def add_batch(self, batch: Batch) -> Batch:
        """Write the record and hold `enqueued_tokens` of its tenant's quota, in one transaction.

        The same id again returns the record that is there. A `created_at` of 0 is set by the database's clock. Raises
        QuotaExceeded, and NotFound where its input file is gone by now.
        """
        ...

    def batch(self, batch_id: str, tenant: str) -> Batch:
        """Raises NotFound."""
        ...

    def batches(self, tenant: str, *, after: str | None = None, limit: int = 20) -> list[Batch]:
        """The newest first. Raises NotFound for an unknown `after`."""
        ...

    def open_batches(self, *, after: str | None = None, limit: int = 1000) -> list[Batch]:
        """Of all tenants, those not at their end, the oldest first: the keeper's work.

        after: the id to go on from (exclusive), also where that batch is at its end by now.
        """
        ...

    def change_batch(self, batch: Batch) -> Batch | None:
        """Compare-and-set on the version, which goes up by one; None if it lost.

        More `enqueued_tokens` than before are held if there is room, fewer are returned, and in a terminal status all
        are: then 0 is written. Raises QuotaExceeded, and nothing is changed.
        """
        ...

    def change_batches(self, batches: Sequence[Batch]) -> list[Batch | None]:
        """As `change_batch` for each, in one transaction; the first error is raised once all are through."""
        ...

    def enqueued_tokens(self, tenant: str) -> int:
        """What its batches hold of its quota now."""
        ...


class ReplayStore(Protocol):
    """Idempotency keys."""

    def begin(self, tenant: str, key: str, digest: str, resource: str, *, stale_s: float) -> Replay:
        """Note the first use of a key, or say what is known.

        A use that has not answered for stale_s, or was given up, is taken over, but only by the same request (digest).
        """
        ...

    def answered(self, tenant: str, key: str, status: int, body: bytes) -> None:
        """Remember the answer; the first one stays."""
        ...

    def forget(self, tenant: str, key: str, claim: str) -> None:
        """The request was refused before it did anything: the key is free again, unless another has taken it over."""
        ...

    def give_up(self, tenant: str, key: str, claim: str) -> None:
        """The request failed and may have made something: the same one again acts at once, with the same resource."""
        ...

    def forget_replays(self, older_than_s: float) -> int:
        """Those begun so long ago. How many went."""
        ...


class FilingStore(FileStore, BatchStore, ReplayStore, Protocol):
    """All of it."""
