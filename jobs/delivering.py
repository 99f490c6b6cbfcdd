"""Webhooks: how an endpoint is made, and how a delivery is tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.errors import NightmillError, NotFound
from jobs.ports.clock import Clock
from jobs.ports.webhooks import Post, Seal, WebhookStore
from jobs.webhooks import GONE, Attempt, Delivery, Webhook, after, headers_of, key_of


def about(tenant: str, webhook_id: str) -> Sequence[str]:
    """What an endpoint's secret is sealed for."""
    return (tenant, webhook_id)


def new_webhook(webhook_id: str, *, tenant: str, url: str, secret: str, seal: Seal, standing: bool = True) -> Webhook:
    """An endpoint with its secret sealed. Raises BadInput for a secret that is none."""
    key_of(secret)
    return Webhook(
        id=webhook_id,
        tenant=tenant,
        url=url,
        sealed=seal.seal(secret, about(tenant, webhook_id)),
        standing=standing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """`deliver` what `take_deliveries` gave. chance: random, 0 ≤ x < 1."""

    store: WebhookStore
    post: Post
    seal: Seal
    clock: Clock
    now: Callable[[], float]
    chance: Callable[[], float]

    def deliver(self, delivery: Delivery) -> Delivery:
        """One attempt, and what it came to, written down. Whoever dies in between leaves it due again: the same
        message comes twice, under one id.
        """
        try:
            webhook = self.store.webhook(delivery.webhook, delivery.tenant)
        except NotFound:
            return delivery  # it is forgotten, and its deliveries with it
        gone = webhook.ended_at is not None  # it was removed while this was written
        attempt = Attempt(status=GONE, reason="the webhook was removed") if gone else self._attempt(webhook, delivery)
        settled = after(delivery, attempt, now=self.now(), chance=self.chance())
        self.store.settle_delivery(settled)
        if attempt.gone and not gone:
            self.store.end_webhook(webhook.id, tenant=webhook.tenant, actor=webhook.id, reason=attempt.reason)
        return settled

    def _attempt(self, webhook: Webhook, delivery: Delivery) -> Attempt:
        try:
            secret = self.seal.open(webhook.sealed, about(webhook.tenant, webhook.id))
            headers = headers_of(secret, delivery, self.clock.now())
            status = self.post(webhook.url, headers, delivery.body.encode())
        except NightmillError as error:
            return Attempt(reason=error.sentence)
        found = Attempt(status=status)
        return found if found.taken else found.evolve(reason=f"it answered with status {status}")
