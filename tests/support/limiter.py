"""A limiter of one caller that counts, for what the API does with what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.errors import QuotaExceeded
from jobs.ports.limiting import Standing

STANDING = Standing(
    limit_requests=60,
    remaining_requests=59,
    reset_requests_s=1.0,
    limit_tokens=1000,
    remaining_tokens=900,
    reset_tokens_s=366.0,
)


class TooMany(QuotaExceeded):
    """Key {key} may use {limit} tokens a minute. Try again in {retry_after_s} s."""

    code = "rate_limit_exceeded"


@dataclass
class SmallHold:
    """told: what became of it, once."""

    limiter: SmallLimiter
    tokens: int
    standing: Standing = STANDING

    def settle(self, tokens: int) -> None:
        self.limiter.told.append(("settled", self.tokens, tokens))

    def release(self) -> None:
        self.limiter.told.append(("released", self.tokens, 0))


@dataclass
class SmallLimiter:
    """most: tokens of one request. quick: whether it can say without asking. told: how holds ended."""

    most: int = 5000
    at_once: bool = True
    told: list[tuple[str, int, int]] = field(default_factory=list)

    def quick(self, key, tenant, tokens):
        return SmallHold(self, tokens) if self.at_once and tokens <= self.most else None

    def hold(self, key, tenant, tokens):
        if tokens > self.most:
            standing = STANDING.evolve(remaining_tokens=0)
            raise TooMany(key=key.id, limit=self.most, retry_after_s=0.25, standing=standing)
        return SmallHold(self, tokens)
