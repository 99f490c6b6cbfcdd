"""An engine that does what the test says, in the test's own thread."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.errors import EngineDied, EngineStartFailed
from jobs.ports.engine import Engine, EngineInfo, EnginePiece, EngineRequest, EngineResult, Occupancy, RequestProfile
from tests.support.values import a_result


def an_info(max_num_seqs: int = 8) -> EngineInfo:
    return EngineInfo(
        engine="scripted", version="1", model="m", kind="chat", max_model_len=1000, max_num_seqs=max_num_seqs
    )


class ScriptedEngine(Engine):
    """`poll` never waits: it finishes the `per_poll` oldest rows, or dies if a poisonous prompt is inside.

    holds_aborts: an aborted row stays inside until this is taken back. outrun: so many aborted rows finish all the
    same. fails_to_start: so many starts fail. most: the most rows that were ever inside. crowds: the prompts inside
    after each submit. tell: pieces for `take_pieces`. woken: how often it was.
    """

    def __init__(self, per_poll: int = 0, poison: Sequence[str] = (), max_num_seqs: int = 8) -> None:
        self.per_poll = per_poll
        self.poison = frozenset(poison)
        self.info = an_info(max_num_seqs)
        self.holds_aborts = False
        self.outrun = 0
        self.fails_to_start = 0
        self.starts = 0
        self.most = 0
        self.crowds: list[frozenset[str]] = []
        self.tell: list[EnginePiece] = []
        self.woken = 0
        self._inside: dict[int, str] = {}
        self._aborted: set[int] = set()

    # ---- the port -------------------------------------------------------------------------------

    def start(self) -> EngineInfo:
        if self.fails_to_start:
            self.fails_to_start -= 1
            raise EngineStartFailed(model="m", reason="the test said so")
        self.starts += 1
        return self.info

    def check_schema(self, schema: str) -> None: ...

    def submit(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        assert not self._inside.keys() & {request.id for request in requests}, "an id twice"
        self._inside |= {request.id: str(request.prompt) for request in requests}
        self.most = max(self.most, len(self._inside))
        self.crowds.append(self.prompts())

    def poll(self, timeout_s: float) -> list[EngineResult]:
        if self.poison & self.prompts():
            self._inside.clear()
            self._aborted.clear()
            raise EngineDied(model="m", reason="poison")
        late = sorted(self._aborted)[: self.outrun]
        self._aborted.difference_update(late)
        running = [row_id for row_id in self._inside if row_id not in self._aborted and row_id not in late]
        done = [a_result(row_id) for row_id in late + running[: self.per_poll]]
        if not self.holds_aborts:
            done += [EngineResult(row_id, "abort", input_tokens=10) for row_id in self._aborted]
            self._aborted.clear()
        for result in done:
            del self._inside[result.id]
        return done

    def take_pieces(self) -> list[EnginePiece]:
        pieces, self.tell = self.tell, []
        return pieces

    def wake(self) -> None:
        self.woken += 1

    def abort(self, ids: Sequence[int]) -> None:
        self._aborted |= self._inside.keys() & set(ids)

    def in_flight(self) -> int:
        return len(self._inside)

    def occupancy(self) -> Occupancy:
        return Occupancy(running=len(self._inside))

    def tokens_moved(self) -> int:
        return 0

    def stop(self) -> None:
        self._inside.clear()

    # ---- what a test asks -------------------------------------------------------------------------

    def prompts(self) -> frozenset[str]:
        return frozenset(self._inside.values())
