"""The fake engine's clockwork: when it answers, as a function of the time it is told."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from infra.engines.fake_answers import Flavour, answer_row
from infra.engines.fake_args import FakeArgs
from infra.engines.fake_stream import Stream, stream_of
from jobs.ports.engine import EnginePiece, EngineRequest, EngineResult, Occupancy
from jobs.prompts import plain_text

TICK_S = 0.25
"""A row that takes long counts as progress this often, as a real engine's tokens would."""
TURN_ROWS = 512
"""At most so many rows are answered before results go out and new rows come in."""


class FakeCore:
    """The engine's clockwork, without threads or clocks: `add`, then `advance(now)` yields what finished, and
    `take_pieces` what was generated of rows that are told of meanwhile.
    """

    def __init__(self, args: FakeArgs) -> None:
        self._args = args
        self._waiting: list[tuple[int, int, EngineRequest, Flavour]] = []
        self._running: list[tuple[float, int, EngineResult]] = []
        self._streams: dict[int, Stream] = {}
        self._pieces: list[EnginePiece] = []
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
        done = self._drop_aborted(now) if self._aborted else []
        while True:
            while self._running and self._running[0][0] <= now:
                done.append(self._end(heapq.heappop(self._running)[2]))
            if not self._waiting or len(self._running) >= self._args.max_num_seqs or len(done) >= TURN_ROWS:
                break
            if not self._begin(now):
                break
        for stream in self._streams.values():
            self._pieces += stream.tell(stream.done(now))
        self._account(done, now)
        return done

    def take_pieces(self) -> list[EnginePiece]:
        """What was generated up to the last `advance`, and not yet taken."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def occupancy(self) -> Occupancy:
        """Rows that have begun, and rows that wait for a seat."""
        return Occupancy(running=len(self._running), waiting=len(self._waiting))

    def next_at(self) -> float | None:
        """When `advance` has something to do next; None when only new rows can change anything."""
        if self.hung:
            return None
        if self._waiting and len(self._running) < self._args.max_num_seqs:
            return 0.0
        steps = [at for stream in self._streams.values() if (at := stream.next_s) is not None]
        return min([self._running[0][0], *steps]) if self._running else None

    def _begin(self, now: float) -> bool:
        """Start the next row; False when it makes the engine die or hang."""
        _, order, request, flavour = heapq.heappop(self._waiting)
        text = plain_text(request.prompt)
        args = self._args
        self.dead = bool(args.die_on and args.die_on in text)
        self.hung = bool(args.hang_on and args.hang_on in text)
        result = answer_row(request, text, flavour, args)
        cost = 1 / args.rows_per_s if args.rows_per_s else 0.0
        if args.tokens_per_s:
            cost = max(cost, result.output_tokens / args.tokens_per_s)
        self._free_at = max(self._free_at, now) + cost
        latency_s = args.row_latency_s + args.token_latency_s * result.output_tokens
        end_s = self._free_at + latency_s
        heapq.heappush(self._running, (end_s, order, result))
        if flavour.profile.streams:
            self._streams[result.id] = stream_of(result, end_s, args.token_latency_s)
        return not (self.dead or self.hung)

    def _end(self, result: EngineResult) -> EngineResult:
        if (stream := self._streams.pop(result.id, None)) is not None:
            self._pieces += stream.tell(stream.steps)
        return result

    def _drop_aborted(self, now: float) -> list[EngineResult]:
        gone = [EngineResult(entry[2].id, "abort") for entry in self._waiting if entry[2].id in self._aborted]
        for end_s, _, result in self._running:
            if result.id in self._aborted:
                told = self._streams.pop(result.id, None)
                stream = told or stream_of(result, end_s, self._args.token_latency_s)
                steps = stream.done(now)
                if told is not None:
                    self._pieces += told.tell(steps)
                gone.append(stream.cut_short(steps))
        self._waiting = [entry for entry in self._waiting if entry[2].id not in self._aborted]
        self._running = [entry for entry in self._running if entry[2].id not in self._aborted]
        heapq.heapify(self._waiting)
        heapq.heapify(self._running)
        self._aborted.clear()
        return gone

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
