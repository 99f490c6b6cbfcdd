"""Requests for tests: one to ask, an ear that keeps what it hears, a poster without a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from jobs.ports.engine import RequestProfile, Several
from jobs.requests import End, Ended, LiveRequest, Piece, Posting, Said
from tests.support.engine import ScriptedEngine, an_info
from tests.support.values import a_price
from workers.doorstep import LivePolicy
from workers.live import Live, live_of
from workers.posting import Parcel, tell

_numbers = count(1)


def a_live_request(**changes: Any) -> LiveRequest:
    """A chat of one sequence, under a new id; 10 tokens in, at most 5 out."""
    plain = {
        "id": f"request-{next(_numbers)}",
        "tenant": "t",
        "model": "m",
        "asked_model": "m",
        "endpoint": "/v1/chat/completions",
        "price": a_price(),
        "profile": RequestProfile(key="k", kind="chat"),
        "prompt": "hello",
        "input_tokens": 10,
        "output_tokens": 5,
    }
    return LiveRequest(**{**plain, **changes})


def many_inputs(inputs: int, **changes: Any) -> LiveRequest:
    """Texts `input 0`, `input 1` … of 10 tokens each."""
    prompt = Several(tuple(f"input {number}" for number in range(inputs)))
    profile = RequestProfile(key="e", kind="embedding")
    facts = {"prompt": prompt, "profile": profile, "seats": inputs, "input_tokens": 10 * inputs, "output_tokens": 0}
    return a_live_request(**{**facts, **changes})


@dataclass(slots=True)
class Ear:
    """Call it as `jobs.ports.live.Hear`."""

    said: list[Said] = field(default_factory=list)

    def __call__(self, said: Said) -> None:
        assert not self.ended, f"after its end it was told {said}"
        self.said.append(said)

    @property
    def text(self) -> str:
        return "".join(word.text for word in self.said if isinstance(word, Piece))

    @property
    def ended(self) -> Ended | None:
        return self.said[-1] if self.said and isinstance(self.said[-1], Ended) else None

    @property
    def end(self) -> End | None:
        return None if self.ended is None else self.ended.end


@dataclass(slots=True)
class InlinePoster:
    """Posts and tells at once. order: ids as they were posted."""

    postings: list[Posting] = field(default_factory=list)
    idle: bool = True
    unposted: int = 0

    @property
    def posted(self) -> int:
        return len(self.postings)

    def put(self, parcel: Parcel) -> None:
        self.postings.append(parcel.posting)
        tell(parcel.hear, parcel.ended)

    def close(self) -> None: ...

    def order(self) -> Sequence[str]:
        return [posting.id for posting in self.postings]


def a_live(engine: ScriptedEngine, clock: Any, poster: Any = None, **policy: Any) -> Live:
    """Of a worker `w` of the pool `pool`, with the seats that the engine has."""
    info = an_info(engine.info.max_num_seqs)
    return live_of(engine, info, poster or InlinePoster(), clock, LivePolicy(**policy), pool="pool", worker="w")
