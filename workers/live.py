"""Requests in a worker: taken in by any thread, run in the worker's loop, posted, and told of.

`enter` and `leave` only put things on the doorstep and wake the engine's `poll`; everything else happens in the loop,
beside the tasks' rows. A request is told of its end exactly once: refused at once where there is no room, else posted
first (`Poster`), or lost with the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from jobs.admission import AdmitPolicy, row_cap
from jobs.model import Outcome
from jobs.ports.clock import Clock
from jobs.ports.engine import Engine, EngineInfo, EnginePiece, EngineRequest, EngineResult
from jobs.ports.live import Hear
from jobs.requests import End, Ended, LiveRequest, Load, Piece, posting_of
from workers.asks import Ask, Stop, outcome_of, placed
from workers.doorstep import Doorstep, LivePolicy
from workers.posting import Parcel, Poster, tell
from workers.seating import Seating

LIVE = 1 << 60
"""Ids of requests in the engine begin here; those of rows lie far below."""
STARTS_AGAIN = "its engine starts again"


@dataclass(slots=True, kw_only=True)
class Live:
    """`enter` and `leave` from any thread, as all of `doorstep`; the others by the worker's loop alone.

    pool, worker: as postings name them; "" where none are taken. served: requests and probes that were done.
    done, aborted, lost: requests, by how they ended; further ones are `doorstep.refused`.
    """

    engine: Engine
    poster: Poster
    clock: Clock
    doorstep: Doorstep
    pool: str
    worker: str
    served: int = 0
    done: int = 0
    aborted: int = 0
    lost: int = 0
    _turns: deque[Ask] = field(default_factory=deque)
    _inside: dict[int, Ask] = field(default_factory=dict)
    _ids: count[int] = field(default_factory=lambda: count(LIVE))

    # ---- from any thread --------------------------------------------------------------------------

    def enter(self, request: LiveRequest, hear: Hear) -> None:
        """See `jobs.ports.live.Door`."""
        refusal = self.doorstep.take(request, hear)
        if refusal is None:
            self.engine.wake()
        else:
            tell(hear, refusal)

    def leave(self, request_id: str) -> None:
        """See `jobs.ports.live.Door`."""
        self._leave(request_id, Stop.LEFT)

    def lose(self, request_id: str) -> None:
        """Whoever asked cannot be told any more, and may ask elsewhere: it is aborted, and nobody pays."""
        self._leave(request_id, Stop.BROKEN)

    def load(self) -> Load:
        """See `jobs.ports.live.Door`."""
        return self.doorstep.load().evolve(tokens_moved=self.engine.tokens_moved())

    @property
    def inside(self) -> int:
        """Requests in hand, without probes."""
        return self.doorstep.requests

    @property
    def idle(self) -> bool:
        """No request is in hand, and all are told."""
        return not self.doorstep.asks and self.poster.idle

    # ---- the loop -----------------------------------------------------------------------------------

    def row_cap(self, cap: int) -> int:
        """Rows of tasks in the engine at most, where it would be `cap` without requests."""
        quiet = (
            self.doorstep.asked_s is None
            or self.clock.monotonic() - self.doorstep.asked_s > self.doorstep.policy.quiet_s
        )
        if quiet and not self.inside:
            return cap
        kept, asked = self.doorstep.policy.kept_free, self.doorstep.seating.asked
        return row_cap(self.doorstep.admit.seats, kept, requests=asked, waiting=self.doorstep.waiting, cap=cap)

    @property
    def presses(self) -> bool:
        """Requests wait, or have more seats than are kept for them."""
        seats = self.doorstep.admit.seats
        return self.doorstep.waiting > 0 or self.doorstep.seating.asked > seats * self.doorstep.policy.kept_free

    def row_ended(self) -> None:
        """A row of a task came back: its seat is free."""
        self.doorstep.seating.row_ended()

    def let_in(self, rows: int, *, alone: bool = False) -> None:
        """Those on the doorstep into the engine, those that leave out of it. rows: of tasks, inside now.

        alone: rows under suspicion are to run alone: nothing may be inside beside them.
        """
        now = self.clock.monotonic()
        fresh, leaving = self.doorstep.collect()
        for ask in fresh:
            if alone and not ask.request.probe:
                self._refuse(ask, "rows under suspicion run alone")
            else:
                self.doorstep.seating.line.append(ask)
                self._turns.append(ask)
        for ask, why in leaving:
            self._stop(ask, why)
        self._submit()
        changed = self.doorstep.seating.begin(rows, now)
        self._refuse_overdue(now)
        if changed:
            self.doorstep.changed()

    def hear(self, pieces: Sequence[EnginePiece]) -> None:
        """Tell them on."""
        now = self.clock.monotonic()
        for piece in pieces:
            ask = self._inside.get(piece.id)
            if ask is None or ask.stopping is not None:
                continue
            if ask.first_s is None:
                ask.first_s = now
            ask.said += piece.output_tokens
            first = ask.inside[piece.id].first
            tell(ask.hear, Piece(first + piece.choice, piece.text, piece.output_tokens, piece.tokens))

    def take(self, result: EngineResult) -> None:
        """A result of ours came back."""
        ask = self._inside.pop(result.id, None)
        if ask is None:
            return
        pack = ask.inside.pop(result.id)
        self.doorstep.seating.left(pack)
        ask.results[pack.first] = result = placed(result, ask, pack)
        if ask.first_s is None and result.finish_reason in {"stop", "length"}:
            ask.first_s = self.clock.monotonic()
        if result.finish_reason == "error" and ask.stopping is None:
            self._stop(ask, Stop.ERROR)
        elif ask.over:
            self._end(ask)

    def stop_all(self) -> None:
        """Abort what is inside: it is posted for what was generated, or refused where that is nothing."""
        for ask in list(self.doorstep.asks.values()):
            self._stop(ask, Stop.DRAIN)

    def bury(self, reason: str) -> None:
        """The engine died: what was inside is lost with it, what was not is refused. Closed until `open_again`."""
        self.doorstep.close(STARTS_AGAIN)
        self.doorstep.collect()
        for ask in list(self.doorstep.asks.values()):
            if ask.inside or ask.results:
                generated = EngineResult(0, "abort", output_tokens=ask.said)
                self.lost += not ask.request.probe
                self._tell_end(ask, Ended(end=End.LOST, result=generated, reason=reason))
            else:
                self._refuse(ask, reason)
        self._turns.clear()
        self._inside.clear()
        self.doorstep.seating.clear()

    def open_again(self) -> None:
        """Its engine runs again."""
        self.doorstep.open_again(STARTS_AGAIN)

    def end(self, reason: str) -> None:
        """The worker ends: whatever is left is lost. Returns once all is told."""
        self.doorstep.close(reason)
        self.bury(reason)
        self.poster.close()

    # ---- inside -------------------------------------------------------------------------------------

    def _submit(self) -> None:
        """Each in turn a pack, the first one at once: those with many go on while there is a free seat."""
        passed = 0
        while self._turns and passed < len(self._turns):
            ask = self._turns.popleft()
            if ask.stopping is not None or not ask.packs:
                continue
            if ask.inside and self.doorstep.seating.asked + self.doorstep.seating.rows >= self.doorstep.admit.seats:
                self._turns.append(ask)
                passed += 1
                continue
            passed = 0
            self._put_in(ask)
            if ask.packs:
                self._turns.append(ask)

    def _put_in(self, ask: Ask) -> None:
        pack, number = ask.packs.pop(), next(self._ids)
        self.doorstep.seating.entered(ask, pack)
        ask.inside[number] = pack
        self._inside[number] = ask
        self.engine.submit(ask.profile, [EngineRequest(number, pack.prompt)])

    def _refuse_overdue(self, now: float) -> None:
        """The bound on the wait: what was promised holds even where the prediction did not."""
        for ask in [a for a in self.doorstep.seating.line if now - a.entered_s > self.doorstep.policy.max_wait_s]:
            if not ask.request.probe and ask.first_s is None:  # else it was told of: it stands in line by mistake
                self._stop(ask, Stop.LATE)

    def _leave(self, request_id: str, why: Stop) -> None:
        if self.doorstep.leaves(request_id, why):
            self.engine.wake()

    def _stop(self, ask: Ask, why: Stop) -> None:
        if ask.stopping is not None or ask.request.id not in self.doorstep.asks:
            return
        ask.stopping = why
        self.doorstep.seating.dropped(ask)
        if ask.inside:
            self.engine.abort([*ask.inside])
        else:
            self._end(ask)

    def _end(self, ask: Ask) -> None:
        """Nothing of it is inside any more."""
        result = ask.result()
        outcome = outcome_of(result)
        if ask.stopping is Stop.BROKEN:
            self.lost += not ask.request.probe
            self._tell_end(ask, Ended(end=End.LOST, result=result, reason="its connection broke"))
            return
        if ask.undone:
            late = f"it waited {self.doorstep.policy.max_wait_s:g} s and no seat came free"
            self._refuse(ask, late if ask.stopping is Stop.LATE else self.doorstep.closed)
            return
        self._learn(ask, result)
        end = End.ABORTED if outcome is Outcome.CANCELLED else End.DONE
        ended = Ended(end=end, result=result, usage=ask.usage(result))
        self.served += end is End.DONE
        if ask.request.probe:
            self._tell_end(ask, ended)
            return
        self.done += end is End.DONE
        self.aborted += end is End.ABORTED
        posting = posting_of(
            ask.request,
            ended.usage,
            pool=self.pool,
            worker=self.worker,
            outcome=outcome.value,
            first_token_s=None if ask.first_s is None else ask.first_s - ask.entered_s,
            seconds=self.clock.monotonic() - ask.entered_s,
            at=self.clock.now(),
        )
        self.poster.put(Parcel(posting, ended, ask.hear))
        self.doorstep.forget(ask)

    def _learn(self, ask: Ask, result: EngineResult) -> None:
        if result.finish_reason not in {"stop", "length"} or ask.request.probe:
            return
        seats = max(1, ask.request.seats)
        seconds = (self.clock.monotonic() - ask.begun_s) * min(seats, self.doorstep.admit.seats) / seats
        self.doorstep.learn(service_s=seconds, estimated=ask.request.output_tokens, came=result.output_tokens)

    def _refuse(self, ask: Ask, reason: str) -> None:
        self.doorstep.refused += not ask.request.probe
        self._tell_end(ask, Ended(end=End.REFUSED, retry_after_s=self.doorstep.retry_s(), reason=reason))

    def _tell_end(self, ask: Ask, ended: Ended) -> None:
        self.doorstep.forget(ask)
        tell(ask.hear, ended)


def live_of(
    engine: Engine, info: EngineInfo, poster: Poster, clock: Clock, policy: LivePolicy, *, pool: str, worker: str
) -> Live:
    """With the bounds of the engine."""
    admit = AdmitPolicy(seats=info.max_num_seqs, kv_tokens=info.kv_cache_tokens, max_wait_s=policy.max_wait_s)
    doorstep = Doorstep(seating=Seating(seats=info.max_num_seqs), clock=clock, admit=admit, policy=policy)
    return Live(engine=engine, poster=poster, clock=clock, doorstep=doorstep, pool=pool, worker=worker)


def nobody(engine: Engine, info: EngineInfo, clock: Clock) -> Live:
    """Of a worker that takes no requests."""
    poster = Poster(post=lambda _: [], clock=clock)
    live = live_of(engine, info, poster, clock, LivePolicy(), pool="", worker="")
    live.doorstep.close("this worker takes no requests")
    return live
