"""The filing port: files, batches and remembered answers, all inside their tenant. Part of the database.

Every lookup names the tenant; what belongs to another is NotFound, with the same words as what never was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.filing import Batch, StoredFile
from jobs.model import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Value):
    """What is remembered of an idempotency key.

    digest: of method, path and body of the first request. resource: the id that the first request was to make, chosen
    before anything was made, so that who comes after a crash makes the same. answer: (status, body), or None while it
    is under way. mine: this call may act now, as the first or as the heir of one that died.
    """

    digest: str
    resource: str
    answer: tuple[int, bytes] | None = None
    mine: bool = False


class FileStore(Protocol):
    """Files."""

    def add_file(self, file: StoredFile) -> StoredFile:
        """Write the record, once its bytes are durable. The same id again returns the record that is there."""
        ...

    def file(self, file_id: str, tenant: str) -> StoredFile:
        """Raises NotFound, also for a deleted or expired one."""
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

    def dead_files(self, limit: int = 1000) -> list[StoredFile]:
        """Deleted or expired files whose bytes are still there, for the sweeper."""
        ...

    def forget_files(self, file_ids: Sequence[str]) -> None:
        """Their bytes are gone."""
        ...


class BatchStore(Protocol):
    """Batches."""

    def add_batch(self, batch: Batch) -> Batch:
        """Write the record and hold `enqueued_tokens` of its tenant's quota, in one transaction.

        The same id again returns the record that is there. Raises QuotaExceeded.
        """
        ...

    def batch(self, batch_id: str, tenant: str) -> Batch:
        """Raises NotFound."""
        ...

    def batches(self, tenant: str, *, after: str | None = None, limit: int = 20) -> list[Batch]:
        """The newest first. Raises NotFound for an unknown `after`."""
        ...

    def open_batches(self, limit: int = 1000) -> list[Batch]:
        """Of all tenants, those not at their end, the oldest first: the keeper's work."""
        ...

    def change_batch(self, batch: Batch) -> Batch | None:
        """Compare-and-set on the version; a terminal status returns what is held of the quota. None if it lost.

        More `enqueued_tokens` than before are held if there is room. Raises QuotaExceeded.
        """
        ...

    def enqueued_tokens(self, tenant: str) -> int:
        """What its batches hold of its quota now."""
        ...


class ReplayStore(Protocol):
    """Idempotency keys."""

    def begin(self, tenant: str, key: str, digest: str, resource: str, *, stale_s: float) -> Replay:
        """Note the first use of a key, or say what is known. A use that has not answered for stale_s is taken over."""
        ...

    def answered(self, tenant: str, key: str, status: int, body: bytes) -> None:
        """Remember the answer; the first one stays."""
        ...

    def forget(self, tenant: str, key: str) -> None:
        """The first request was refused before it did anything: the key is free again."""
        ...

    def forget_replays(self, older_than_s: float) -> int:
        """How many went."""
        ...


class FilingStore(FileStore, BatchStore, ReplayStore, Protocol):
    """All of it."""
