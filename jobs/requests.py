"""Interactive requests: one prompt that somebody waits for, what is said of it on the way, and its charge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from jobs.model import Price, Usage, Value
from jobs.ports.engine import EngineResult, ModelKind, Prompt, RequestProfile

URGENT = -1
"""Of a request's profile: before every row of a job, whose most urgent rank is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest(Value):
    """A request as a worker takes it, checked and priced.

    id: unique for ever; the charge key. model: the served one; asked_model: the name in the request. price: frozen now.
    creator: id of the API key. profile: as for a batch row, and with `stream` where pieces are wanted.
    input_tokens, output_tokens: estimated, at most; of all its inputs and answers together.
    seats: sequences that it needs in the engine: its inputs times its answers.
    probe: asked by us to prove a worker's health: never posted, never refused for want of room.
    """

    id: str
    tenant: str
    model: str
    asked_model: str
    endpoint: str
    price: Price
    profile: RequestProfile
    prompt: Prompt
    project: str = ""
    creator: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seats: int = 1
    probe: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


_NOTHING = Price(version="", model="", currency="", input_micro=0, cached_micro=0, output_micro=0)


def probe_of(model: str, kind: ModelKind, request_id: str) -> LiveRequest:
    """The smallest work that a model can have: one token, or the embedding of one."""
    sampling = "{}" if kind == "embedding" else '{"max_tokens":1,"temperature":0}'
    endpoint = "/v1/embeddings" if kind == "embedding" else "/v1/completions"
    return LiveRequest(
        id=request_id,
        tenant="",
        model=model,
        asked_model=model,
        endpoint=endpoint,
        price=_NOTHING,
        profile=RequestProfile(key="probe", kind=kind if kind == "embedding" else "completion", sampling=sampling),
        prompt="a",
        input_tokens=1,
        output_tokens=0 if kind == "embedding" else 1,
        probe=True,
    )


class End(StrEnum):
    """How a request ended. Each but `REFUSED` and `LOST` is posted, once, before it is told."""

    DONE = "done"
    """The engine finished; the result may be an error of the request itself (too long), which costs nothing but for the
    answers to its other inputs that were told already."""
    ABORTED = "aborted"
    """Its client went away, or its worker had to stop; it pays for what was generated."""
    REFUSED = "refused"
    """The worker has no room, drains, or is not there: nothing was done, another may take it."""
    LOST = "lost"
    """The engine or the worker died with it inside, or its charge could not be posted: nobody pays."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What came since the last piece. choice: which of its answers, by input and then by choice.

    output_tokens: generated since the last piece. tokens: places as in `EngineResult.answers`, where `logprobs` were
    asked for.
    """

    choice: int
    text: str
    output_tokens: int = 0
    tokens: Sequence[tuple[str, float, Sequence[tuple[str, float]]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Value):
    """The last that is said of a request.

    result: of the engine, where it has one. usage: what is charged. retry_after_s: of a refusal: when there is room, as
    far as can be told. reason: of a refusal or loss.
    """

    end: End
    result: EngineResult | None = None
    usage: Usage = Usage()
    retry_after_s: float | None = None
    reason: str = ""


Said = Piece | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Value):
    """What a worker has in hand. seats: sequences that its engine runs at once; used: of requests and of rows.

    waiting: requests that have entered and not begun. wait_s: what a new request would wait, as predicted.
    open: whether it takes requests at all (it is running, not draining). tokens_moved: a counter that grows while its
    engine works, 0 where it is not told.
    """

    seats: int = 0
    used: int = 0
    waiting: int = 0
    wait_s: float = 0.0
    open: bool = False
    tokens_moved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting(Value):
    """The record of a request that was served, and its charge: written once, under the request's id.

    outcome: `ok`, `truncated`, `error`, `cancelled` (aborted). first_token_s: from its entry at the worker; None where
    nothing was generated. at: when it ended, by the worker's clock.
    """

    id: str
    tenant: str
    model: str
    asked_model: str
    endpoint: str
    pool: str
    worker: str
    price: Price
    usage: Usage
    outcome: str
    project: str = ""
    creator: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    first_token_s: float | None = None
    seconds: float = 0.0
    at: float = 0.0


def posting_of(request: LiveRequest, usage: Usage, **facts: object) -> Posting:
    """What is written of a request. facts: `pool`, `worker`, `outcome`, `first_token_s`, `seconds`, `at`."""
    return Posting(
        id=request.id,
        tenant=request.tenant,
        project=request.project,
        creator=request.creator,
        tags=request.tags,
        model=request.model,
        asked_model=request.asked_model,
        endpoint=request.endpoint,
        price=request.price,
        usage=usage,
        **facts,  # type: ignore[arg-type]
    )
