"""The fake engine's clockwork: what it answers and when, as functions of the request and the time it is told."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson

from infra.engines import fake_text
from infra.engines.backend import SchemaRefused, StartFailed, check_argument_names, error_row, too_long
from infra.engines.fake_schema import instance, parse_schema
from infra.engines.sampling import BadSampling, read_sampling
from jobs.ports.engine import EngineRequest, EngineResult, RequestProfile

TICK_S = 0.25
"""A row that takes long counts as progress this often, as a real engine's tokens would."""
TURN_ROWS = 512
"""At most so many rows are answered before results go out and new rows come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeArgs:
    """Engine arguments of the fake engine. Speeds of 0 mean: as fast as possible.

    rows_per_s, tokens_per_s (output): of the whole engine. row_latency_s: added to each row.
    Faults: `die_on`, `hang_on`, `error_on`, `length_on` act on a row whose prompt holds the text; `die_after_rows` and
    `hang_after_rows` act once that many rows have finished. To die is SIGKILL, as from the kernel when memory ran out.
    """

    max_num_seqs: int = 256
    max_model_len: int = 4096
    embedding_size: int = 64
    start_s: float = 0.0
    rows_per_s: float = 0.0
    tokens_per_s: float = 0.0
    row_latency_s: float = 0.0
    die_on: str = ""
    hang_on: str = ""
    error_on: str = ""
    length_on: str = ""
    die_after_rows: int = 0
    hang_after_rows: int = 0


_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("text", (str,)),
}


@dataclass(frozen=True, slots=True)
class Flavour:
    """A profile, digested: what its rows have in common."""

    key: bytes
    priority: int
    max_tokens: int | None
    dims: int | None
    schema: object
    refused: str | None


class FakeCore:
    """The engine's clockwork, without threads or clocks: `add`, then `advance(now)` yields what finished."""

    def __init__(self, args: FakeArgs) -> None:
        self._args = args
        self._waiting: list[tuple[int, int, EngineRequest, Flavour]] = []
        self._running: list[tuple[float, int, EngineResult]] = []
        self._aborted: set[int] = set()
        self._inside: set[int] = set()
        self._free_at = 0.0
        self._ticked_at = 0.0
        self._count = 0
        self.finished_rows = 0
        self.moved = 0
        self.hung = False
        self.dead = False

    def add(self, flavour: Flavour, requests: Sequence[EngineRequest]) -> None:
        """Queue rows, by priority and arrival."""
        for request in requests:
            self._count += 1
            self._inside.add(request.id)
            heapq.heappush(self._waiting, (flavour.priority, self._count, request, flavour))

    def abort(self, ids: Sequence[int]) -> None:
        """Mark rows; `advance` returns them."""
        self._aborted.update(self._inside.intersection(ids))

    def advance(self, now: float) -> list[EngineResult]:
        """Rows finished by `now`, starting others as slots and speed allow. Sets `dead` or `hung` on a fault."""
        if self.hung or self.dead:
            return []
        done = self._drop_aborted() if self._aborted else []
        while True:
            while self._running and self._running[0][0] <= now:
                done.append(heapq.heappop(self._running)[2])
            if not self._waiting or len(self._running) >= self._args.max_num_seqs or len(done) >= TURN_ROWS:
                break
            if not self._begin(now):
                break
        self._account(done, now)
        return done

    def next_at(self) -> float | None:
        """When `advance` has something to do next; None when only new rows can change anything."""
        if self.hung:
            return None
        if self._waiting and len(self._running) < self._args.max_num_seqs:
            return 0.0
        return self._running[0][0] if self._running else None

    def _begin(self, now: float) -> bool:
        """Start the next row; False when it makes the engine die or hang."""
        _, order, request, flavour = heapq.heappop(self._waiting)
        text = fake_text.plain_text(request.prompt)
        args = self._args
        self.dead = bool(args.die_on and args.die_on in text)
        self.hung = bool(args.hang_on and args.hang_on in text)
        result = _result(request, text, flavour, args)
        cost = 1 / args.rows_per_s if args.rows_per_s else 0.0
        if args.tokens_per_s:
            cost = max(cost, result.output_tokens / args.tokens_per_s)
        self._free_at = max(self._free_at, now) + cost
        heapq.heappush(self._running, (self._free_at + args.row_latency_s, order, result))
        return not (self.dead or self.hung)

    def _drop_aborted(self) -> list[EngineResult]:
        gone = [entry[2].id for entry in self._waiting if entry[2].id in self._aborted]
        gone += [entry[2].id for entry in self._running if entry[2].id in self._aborted]
        self._waiting = [entry for entry in self._waiting if entry[2].id not in self._aborted]
        self._running = [entry for entry in self._running if entry[2].id not in self._aborted]
        heapq.heapify(self._waiting)
        heapq.heapify(self._running)
        self._aborted.clear()
        return [EngineResult(row, "abort") for row in gone]

    def _account(self, done: Sequence[EngineResult], now: float) -> None:
        for result in done:
            self._inside.discard(result.id)
            self.moved += result.input_tokens + result.output_tokens
        self.finished_rows += len(done)
        if self._running and now - self._ticked_at >= TICK_S:
            self._ticked_at = now
            self.moved += 1
        args = self._args
        self.dead = self.dead or bool(args.die_after_rows and self.finished_rows >= args.die_after_rows)
        self.hung = self.hung or bool(args.hang_after_rows and self.finished_rows >= args.hang_after_rows)


def flavour_of(profile: RequestProfile) -> Flavour:
    """Digest a profile once, for all its rows."""
    refused, params, schema = None, {}, None
    try:
        params = read_sampling(profile.sampling)
        schema = parse_schema(profile.schema) if profile.schema else None
    except (BadSampling, SchemaRefused) as error:
        refused = str(error)
    key = orjson.dumps(params, option=orjson.OPT_SORT_KEYS) + (profile.schema or "").encode()
    dims = profile.dimensions or 0 if profile.kind == "embedding" else None
    return Flavour(
        fake_text.digest_of(key.decode(), b"").to_bytes(8, "little"),
        profile.priority,
        params.get("max_tokens"),
        dims,
        schema,
        refused,
    )


def _result(request: EngineRequest, text: str, flavour: Flavour, args: FakeArgs) -> EngineResult:
    if flavour.refused:
        return error_row(request.id, "invalid_request", flavour.refused)
    tokens, cached = fake_text.count_prompt(request.prompt)
    if flavour.dims is not None:
        if tokens > args.max_model_len:
            return too_long(request.id, tokens, args.max_model_len)
        vector = fake_text.unit_vector(text, flavour.dims or args.embedding_size)
        return EngineResult(request.id, "stop", embedding=vector, input_tokens=tokens, cached_tokens=cached)
    if tokens >= args.max_model_len:
        return too_long(request.id, tokens, args.max_model_len)
    if args.error_on and args.error_on in text:
        return error_row(request.id, "engine_error", f"the prompt holds {args.error_on!r} (error_on)", tokens)
    digest = fake_text.digest_of(text, flavour.key)
    full = fake_text.answer(digest) if flavour.schema is None else _guided(flavour.schema, digest)
    room = args.max_model_len - tokens
    output, was_cut = fake_text.cut(full, min(flavour.max_tokens or room, room))
    long = was_cut or bool(args.length_on and args.length_on in text)
    return EngineResult(
        request.id, "length" if long else "stop", output, None, tokens, cached, fake_text.tokens_of(output)
    )


def _guided(schema: object, digest: int) -> str:
    return orjson.dumps(instance(schema, digest)).decode()


def read_args(given: Mapping[str, Any]) -> FakeArgs:
    """Raises StartFailed naming the argument."""
    check_argument_names(given, [f.name for f in fields(FakeArgs)])
    for field in fields(FakeArgs):
        value = given.get(field.name, field.default)
        wanted, kinds = _KINDS[type(field.default)]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise StartFailed(f"{field.name} must be {wanted}, not {value!r}")
    return FakeArgs(**given)
