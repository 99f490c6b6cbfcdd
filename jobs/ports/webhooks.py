"""The ports of webhooks: the outbox (part of the database), the call itself, and the seal of secrets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from jobs.webhooks import Delivery, Webhook


class WebhookStore(Protocol):
    """Endpoints, and one delivery for each of them and each end that it is told of.

    The deliveries of a job's or batch's end are written in the transaction that ends it (`finalise`, `change_batch`):
    there is none before that commit, and none can be missing after it.
    """

    def add_webhook(self, webhook: Webhook, actor: str) -> Webhook:
        """With its audit event, if it is a standing one. The same id again returns the record that is there.

        A `created_at` of 0 is set by the database's clock. Raises NotFound where the tenant is not known or the id is
        another tenant's.
        """
        ...

    def webhook(self, webhook_id: str, tenant: str | None = None) -> Webhook:
        """Raises NotFound, also for another tenant's."""
        ...

    def webhooks(self, tenant: str | None = None) -> list[Webhook]:
        """The standing ones that have not ended, the newest first."""
        ...

    def end_webhook(self, webhook_id: str, *, tenant: str | None, actor: str, reason: str = "") -> Webhook:
        """It is told of nothing more; its open deliveries fail with the reason. Raises NotFound."""
        ...

    def take_deliveries(self, *, limit: int, each: int, hold_s: float, skip: Collection[str] = ()) -> list[Delivery]:
        """Begin an attempt at what is due, the longest due first; nobody else is given them for hold_s.

        each: of one tenant, at most. skip: tenants that have enough under way.
        """
        ...

    def settle_delivery(self, delivery: Delivery) -> None:
        """Write what an attempt came to, unless another one began or it was settled meanwhile."""
        ...

    def deliveries(
        self, tenant: str | None = None, *, webhook: str | None = None, outcome: str | None = None, limit: int = 100
    ) -> list[Delivery]:
        """The newest first. outcome: "" for open ones."""
        ...

    def resend(self, delivery_id: str, tenant: str | None = None) -> Delivery:
        """Due at once, with all attempts again, whatever became of it.

        Raises NotFound, and Conflict where its endpoint was removed.
        """
        ...

    def forget_deliveries(self, older_than_s: float) -> int:
        """Settled ones that began so long ago, and endpoints of single jobs that have none left. How many went."""
        ...


class Post(Protocol):
    """Calls an address that a tenant named, after the address check."""

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The answer's status. Raises Refused for an address that may not be called, Unavailable for no answer."""
        ...


class Seal(Protocol):
    """Encrypts what must be read again by this installation and nobody else."""

    def seal(self, text: str, about: Sequence[str]) -> str:
        """about: whose it is; it opens for the same only."""
        ...

    def open(self, sealed: str, about: Sequence[str]) -> str:
        """Raises Broken where another key sealed it, or it was for something else."""
        ...
