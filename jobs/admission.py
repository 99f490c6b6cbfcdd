"""Whether a worker takes one more interactive request: by seats, KV tokens and the wait that it would have.

A request that enters goes straight into the engine, which starts it as soon as a sequence ends; so what is decided here
is only whether that is soon enough. One that would wait longer is refused at once, with the time after which to ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from jobs.model import Value
from jobs.requests import LiveRequest

_WEIGHT = 0.1
"""Of the newest request in what is learned: some twenty of them count."""
LEAST_RETRY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitPolicy(Value):
    """seats: sequences that the engine runs at once. kv_tokens: room of its KV cache, 0 where it is not known.

    max_wait_s: the longest wait that is promised. max_behind_s: so much work may wait for its turn behind what has
    begun, of requests with many inputs.
    """

    seats: int
    kv_tokens: int = 0
    max_wait_s: float = 2.0
    max_behind_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(Value):
    """What was learned of the requests that ended. service_s: how long one sequence has its seat. output_share: of the
    output tokens that were estimated (at most so many), those that came.
    """

    service_s: float = 1.0
    output_share: float = 1.0

    def after(self, *, service_s: float, estimated: int, came: int) -> Pace:
        """Once one more ended."""
        share = min(1.0, came / estimated) if estimated > 0 else self.output_share
        return Pace(
            service_s=self.service_s + _WEIGHT * (service_s - self.service_s),
            output_share=self.output_share + _WEIGHT * (share - self.output_share),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InHand(Value):
    """What is inside the engine. used: seats of requests and of rows; with those that requests wait for, without those
    that rows wait for, since a request goes before them. tokens: that the requests are expected to come to.

    behind: seats of inputs that are still to enter, of requests that have begun.
    """

    used: int = 0
    tokens: int = 0
    behind: int = 0
    pace: Pace = Pace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Value):
    """enters: whether it goes in. wait_s: until it begins, as predicted. retry_after_s: of a refusal: until there is
    room again, as predicted.
    """

    enters: bool
    wait_s: float = 0.0
    retry_after_s: float = 0.0


def expected_tokens(request: LiveRequest, pace: Pace) -> int:
    """What the request will come to: of its output, the share that others came to."""
    return request.input_tokens + round(request.output_tokens * pace.output_share)


def wait_s(hand: InHand, policy: AdmitPolicy, *, seats: int = 1, tokens: int = 0) -> float:
    """What one more request would wait: its place in the line, at the rate at which seats and cache come free.

    Of several sequences the first counts, since they need not begin together; and so it is with those that have more of
    them than there are seats. A request alone never waits: the engine takes what it can of it.
    """
    if not hand.used:
        return 0.0
    over_seats = (hand.used + 1 - policy.seats) / policy.seats
    over_tokens = (
        (hand.tokens + tokens / max(1, seats) - policy.kv_tokens) / policy.kv_tokens if policy.kv_tokens else 0
    )
    return max(0.0, over_seats, over_tokens) * hand.pace.service_s


def decide(hand: InHand, policy: AdmitPolicy, request: LiveRequest) -> Verdict:
    """Enter now, enter and wait, or be refused. A probe is never refused: it is to prove that the engine moves."""
    tokens = expected_tokens(request, hand.pace)
    wait = wait_s(hand, policy, seats=request.seats, tokens=tokens)
    behind = hand.behind / policy.seats * hand.pace.service_s
    over = max(wait - policy.max_wait_s, behind - policy.max_behind_s)
    if request.probe or over <= 0:
        return Verdict(enters=True, wait_s=wait)
    return Verdict(enters=False, wait_s=wait, retry_after_s=max(LEAST_RETRY_S, over))


def row_cap(seats: int, kept_free: float, *, requests: int, waiting: int, cap: int) -> int:
    """How many rows of tasks may be in an engine that takes requests too: they leave the kept seats free, and enter no
    more while a request waits. requests: seats that requests have; waiting: of those, seats not yet had. cap: of an
    engine without requests.
    """
    if waiting > 0:
        return 0
    kept = min(seats - 1, ceil(seats * kept_free)) if kept_free > 0 else 0
    return max(0, min(cap, seats - max(kept, requests)))
