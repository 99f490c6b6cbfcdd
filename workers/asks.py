"""A request in a worker's hands: what of it is inside the engine, what came back, and what is charged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from jobs.model import Outcome, Usage
from jobs.outcomes import of_result
from jobs.ports.engine import EngineResult, FinishReason, Prompt, RequestProfile, Several
from jobs.ports.live import Hear
from jobs.requests import URGENT, LiveRequest

_PLACE = re.compile(r"^(input|prompt)\[(\d+)\]")
_WORST_FIRST: tuple[FinishReason, ...] = ("error", "abort", "length")


class Stop(StrEnum):
    """Why a request is aborted: its client left; its connection broke (it may be asked elsewhere, so it must not be
    charged here); it waited too long; the worker drains; another of its inputs is in error.
    """

    LEFT = "left"
    BROKEN = "broken"
    LATE = "late"
    DRAIN = "drain"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Pack:
    """What enters the engine together: all of a request, or some of its many inputs.

    first: number of its first answer; inputs: of those before it. seats: sequences; tokens: estimated, of its inputs.
    """

    prompt: Prompt
    first: int
    inputs: int
    seats: int
    tokens: int


@dataclass(slots=True, kw_only=True, eq=False)
class Ask:
    """Mutable on purpose: it is touched for every piece, by the worker's loop alone, once it has entered.

    packs: still to enter, the next one last. inside: ids in the engine, and their packs. results: by first answer.
    begun_s: since when it has a seat, as far as can be told. first_s: of its first piece, or else of its result.
    stopping: why nothing more of it enters, and what is inside is aborted. said: output tokens told in pieces.
    """

    request: LiveRequest
    hear: Hear
    entered_s: float
    expected: int
    profile: RequestProfile
    packs: list[Pack]
    inside: dict[int, Pack] = field(default_factory=dict)
    results: dict[int, EngineResult] = field(default_factory=dict)
    begun_s: float = field(init=False)
    first_s: float | None = None
    stopping: Stop | None = None
    said: int = 0

    def __post_init__(self) -> None:
        self.begun_s = self.entered_s

    @property
    def seats(self) -> int:
        """In the engine now."""
        return sum([pack.seats for pack in self.inside.values()])

    @property
    def over(self) -> bool:
        return not self.inside and (self.stopping is not None or not self.packs)

    @property
    def undone(self) -> bool:
        """Stopped before anything was generated, by no wish of its client's: another worker may take it."""
        result = self.result()
        idle = not (result.input_tokens or result.output_tokens)
        late = self.stopping is Stop.LATE and not result.output_tokens
        return result.finish_reason == "abort" and (late or (self.stopping is Stop.DRAIN and idle))

    def result(self) -> EngineResult:
        """All that came back, as one; an error of one input is the error of all."""
        return merged([self.results[first] for first in sorted(self.results)])

    def usage(self, result: EngineResult) -> Usage:
        """What is charged: nothing for an error, unless answers to other inputs were told already. Else whoever puts an
        input that must fail behind the others would have these for nothing.
        """
        outcomes = {outcome_of(result).value: 1}
        charged = [result]
        if result.finish_reason == "error":
            charged = [one for one in self.results.values() if one.finish_reason != "error"] if self.said else []
        cached = sum([one.cached_tokens for one in charged])
        return Usage(
            rows=1,
            input_tokens=sum([one.input_tokens for one in charged]) - cached,
            cached_tokens=cached,
            output_tokens=sum([one.output_tokens for one in charged]),
            outcomes=outcomes,
        )


def outcome_of(result: EngineResult) -> Outcome:
    """Of a request that ended."""
    return of_result(result.finish_reason, result.error_code, ending=Outcome.CANCELLED)[0]


def urgent(profile: RequestProfile) -> RequestProfile:
    """As it enters the engine."""
    if profile.priority <= URGENT:
        return profile
    return replace(profile, key=f"{profile.key}/{URGENT}", priority=URGENT)


def packs_of(request: LiveRequest, *, most_tokens: int, most_seats: int) -> list[Pack]:
    """A request of many inputs in packs of at most so many tokens and seats, an input at least; in their order."""
    if not isinstance(request.prompt, Several):
        return [Pack(request.prompt, 0, 0, max(1, request.seats), request.input_tokens)]
    inputs = request.prompt.inputs
    each = max(1, request.seats // max(1, len(inputs)))
    sizes = [len(entry) for entry in inputs]
    scale = request.input_tokens / max(1, sum(sizes))
    return [
        Pack(
            Several(inputs[start:stop]),
            start * each,
            start,
            (stop - start) * each,
            round(sum(sizes[start:stop]) * scale),
        )
        for start, stop in _cuts(
            [size * scale for size in sizes], most_tokens=most_tokens, most=max(1, most_seats // each)
        )
    ]


def placed(result: EngineResult, ask: Ask, pack: Pack) -> EngineResult:
    """A fault names the input by its place in the request. The engine knows of its place in a pack of several."""
    if result.error_message is None or not isinstance(pack.prompt, Several):
        return result
    message, before = result.error_message, pack.inputs
    if _PLACE.match(message):
        message = _PLACE.sub(lambda found: f"{found[1]}[{int(found[2]) + before}]", message, count=1)
    elif len(pack.prompt.inputs) == 1:
        message = f"{'input' if ask.profile.kind == 'embedding' else 'prompt'}[{before}]: {message}"
    return replace(result, error_message=message)


def _cuts(tokens: Sequence[float], *, most_tokens: int, most: int) -> Iterator[tuple[int, int]]:
    start, held = 0, 0.0
    for place, size in enumerate(tokens):
        if place > start and (held + size > most_tokens or place - start >= most):
            yield start, place
            start, held = place, 0.0
        held += size
    yield start, len(tokens)


def merged(results: Sequence[EngineResult]) -> EngineResult:
    """Results of packs as one result. An aborted one may have no answers; then there are none of all."""
    if not results:
        return EngineResult(0, "abort")
    if len(results) == 1:
        return results[0]
    failed = next((result for result in results if result.finish_reason == "error"), None)
    if failed is not None:
        return failed
    reasons = {result.finish_reason for result in results}
    lists = [result.answers for result in results]
    whole = [answers.strip()[1:-1] for answers in lists if answers is not None]
    return EngineResult(
        results[0].id,
        next((reason for reason in _WORST_FIRST if reason in reasons), "stop"),
        results[0].text,
        results[0].embedding,
        sum([result.input_tokens for result in results]),
        sum([result.cached_tokens for result in results]),
        sum([result.output_tokens for result in results]),
        answers=f"[{','.join(whole)}]" if len(whole) == len(lists) else None,
    )
