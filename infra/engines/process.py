"""The engine port over a process of the engine's own, so that its crash, its hang and its imports stay there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from infra.engines import wire
from infra.engines.backend import error_row
from infra.engines.child import Child
from infra.engines.environment import child_environment
from infra.engines.known_profiles import KnownProfiles
from infra.engines.last_words import death_reason, start_reason
from infra.engines.link import Bell, Link, wait
from infra.engines.schema_asks import SchemaAsks
from infra.engines.spec import EngineSpec
from jobs.errors import BadSchema, EngineDied, EngineHung, EngineStartFailed
from jobs.ports.engine import EngineInfo, EnginePiece, EngineRequest, EngineResult, Occupancy, RequestProfile

LOOK_S = 0.25
"""Longest wait between two looks at the process: a grandchild may keep the socket open after the engine is dead."""
STALL_STEP_S = 2.0
"""What one look adds to the stall clock at most, so that a caller that was away (or a suspended laptop) is no hang."""


class EngineProcess:
    """Implements `jobs.ports.engine.Engine`. Used from one thread at a time, but for `wake` and
    `ask_schema`: what `check_schema` would say, which comes while the engine is polled.

    `launch` may be called first, to do other work while the engine starts; `start` then only waits. `check_schema`
    launches if need be and is answered before the model is loaded.
    """

    def __init__(self, spec: EngineSpec, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.spec = spec
        self._clock = clock
        self._child: Child | None = None
        self._death: EngineDied | None = None
        self._info: EngineInfo | None = None
        self._asks = SchemaAsks()
        self.ask_schema = self._asks.ask
        self._moved_before = 0
        self._profiles = KnownProfiles()
        self._inside: set[int] = set()
        self._results: list[EngineResult] = []
        self._pieces: list[EnginePiece] = []
        self._bell = Bell()
        self.wake = self._bell.ring
        self._occupancy = Occupancy()
        self._reset()

    # ---- life ------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Begin to start, and return at once. Does nothing when already begun. Raises EngineStartFailed."""
        if self._child is not None:
            return
        self._reset()
        try:
            self._child = Child(self.spec.log_path, child_environment(self.spec, os.environ))
        except OSError as error:
            raise EngineStartFailed(model=self.spec.model, reason=str(error)) from error
        self._send({"op": "spec", "spec": self.spec.to_wire()})

    def start(self) -> EngineInfo:
        """See the port. Also raises EngineStartFailed when the start takes longer than `start_timeout_s`."""
        while (info := self.ready(LOOK_S)) is None:
            pass
        return info

    def ready(self, wait_s: float) -> EngineInfo | None:
        """Wait for the start this long at most; None while it goes on. Raises as `start` does."""
        self.launch()
        if self._info is None:
            self._step(wait_s)
            self._fail_if_ended()
        if self._info is None and self._clock() > self._began + self.spec.start_timeout_s:
            self._fail(f"it was not ready after {self.spec.start_timeout_s:g} s")
        return self._info

    def stop(self) -> None:
        """See the port. A request to end first, then the whole group is killed."""
        if self._child is None:
            return
        if self._info is not None and self._child.exit_code() is None:
            self._send({"op": "stop"})
            self._await_exit(self._child)
        self._end()

    def kill(self) -> None:
        """End the engine at once, with all its processes. From a signal handler too."""
        self._end()

    # ---- work ------------------------------------------------------------------------------------

    def check_schema(self, schema: str) -> None:
        """See the port. Raises EngineStartFailed if the engine ends before it can answer."""
        self.launch()
        answer = self.ask_schema(schema)
        while not answer.done():
            self._step(LOOK_S)
            self._fail_if_ended()
            self._look(0.0)
        if (refusal := answer.result()) is not None:
            raise BadSchema(reason=refusal)

    def submit(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        """See the port. Raises EngineDied when the engine is known to be gone."""
        self._require_started()
        if profile.key not in self._profiles:
            self._send(wire.profile_to_wire(profile))
        if gone := self._profiles.use(profile):
            self._send({"op": "forget", "keys": gone})
        if not self._inside:
            self._stalled_s = 0.0
        self._inside.update([r.id for r in requests])
        try:
            self._send(wire.requests_to_wire(profile.key, requests))
        except orjson.JSONEncodeError:
            self._send_singly(profile.key, requests)

    def poll(self, timeout_s: float) -> list[EngineResult]:
        self._require_started()
        deadline = self._clock() + timeout_s
        while not (self._results or self._pieces):
            left = deadline - self._clock()
            woken = self._step(max(0.0, min(left, LOOK_S)))
            self._look(self.spec.hang_timeout_s)
            if woken or left <= 0:
                break
        results, self._results = self._results, []
        return results

    def take_pieces(self) -> list[EnginePiece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def abort(self, ids: Sequence[int]) -> None:
        inside = [i for i in ids if i in self._inside]
        if inside and self._death is None:
            self._send({"op": "abort", "ids": inside})

    def in_flight(self) -> int:
        return len(self._inside) + len(self._results)

    def tokens_moved(self) -> int:
        """See the port. Goes on growing over restarts."""
        return self._moved_before + self._moved

    def occupancy(self) -> Occupancy:
        return self._occupancy if self._child is not None else Occupancy()

    @property
    def link(self) -> Link | None:
        """Where to wait for results; None while it is down."""
        return self._child.link if self._child is not None else None

    # ---- inside ----------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._death = None
        self._info = None
        self._began = self._looked_at = self._clock()
        self._stalled_s = 0.0
        self._moved = 0
        self._failure = ""
        self._profiles.clear()

    def _require_started(self) -> None:
        if self._death is not None:
            raise self._death
        if self._info is None:
            raise RuntimeError("the engine is not started")

    def _send(self, head: dict[str, Any]) -> None:
        if self._child is not None:
            self._child.link.send(head)

    def _send_singly(self, key: str, requests: Iterable[EngineRequest]) -> None:
        for request in requests:
            try:
                self._send(wire.requests_to_wire(key, [request]))
            except orjson.JSONEncodeError:
                self._arrive([error_row(request.id, "invalid_request", "the prompt is not valid Unicode text")])

    def _step(self, wait_s: float) -> bool:
        """Wait at most this long, write what is unsent, read and take in what came. Whether `wake` ended the wait."""
        child = self._child
        if child is None:
            return False
        self._asks.send(self._send)
        woken = wait([child.link], self._bell, wait_s)
        child.link.flush()
        self._receive(child)
        return woken

    def _receive(self, child: Child) -> None:
        for head, tail in child.link.receive():
            self._take(child, head, tail)

    def _take(self, child: Child, head: dict[str, Any], tail: bytes) -> None:
        match head["op"]:
            case "results":
                self._advance(head["moved"])
                self._arrive(wire.results_from_wire(head, tail))
            case "pieces":
                self._advance(head["moved"])
                self._pieces += wire.pieces_from_wire(head)
            case "progress":
                self._advance(head["moved"])
                self._occupancy = wire.occupancy_from_wire(head)
            case "ready":
                self._info = wire.info_from_wire(head, self._clock() - self._began)
                child.settled()
                self._looked_at = self._clock()
            case "schema":
                self._asks.answered(head["n"], head["error"])
            case "failed" | "died":
                self._failure = head["reason"]

    def _arrive(self, results: Sequence[EngineResult]) -> None:
        self._inside.difference_update([r.id for r in results])
        self._results.extend(results)
        self._stalled_s = 0.0

    def _advance(self, moved: int) -> None:
        if moved > self._moved:
            self._moved = moved
            self._stalled_s = 0.0

    def _look(self, hang_timeout_s: float) -> None:
        """Raise if the engine is dead or, where a time-out is given, hangs. What came before is told first."""
        now = self._clock()
        self._stalled_s += min(now - self._looked_at, STALL_STEP_S) if self._inside else 0.0
        self._looked_at = now
        if self._results or self._pieces or self._child is None:
            return
        code = self._child.exit_code()
        if self._child.link.closed or code is not None:
            code = self._child.wait_exit(1.0)
            self._receive(self._child)
            if not (self._results or self._pieces):
                reason = death_reason(self._failure, self._child.last_lines(), code)
                self._die(EngineDied(model=self.spec.model, reason=reason))
        elif hang_timeout_s and self._inside and self._stalled_s > hang_timeout_s:
            self._die(EngineHung(model=self.spec.model, seconds=round(self._stalled_s)))

    def _die(self, death: EngineDied) -> None:
        self._end()
        self._death = death
        raise death

    def _fail_if_ended(self) -> None:
        if self._child is None or self._info is not None:
            return
        if self._failure or self._child.link.closed or self._child.exit_code() is not None:
            self._fail("")

    def _fail(self, reason: str) -> None:
        """End the start. The engine's own last words beat the exit code, and a root cause in the log beats both."""
        child = self._child
        code = child.wait_exit(1.0) if child is not None else None
        lines = child.last_lines() if child is not None else []
        self._end()
        reason = reason or start_reason(self._failure, lines, code)
        raise EngineStartFailed(model=self.spec.model, reason=f"{reason} (log: {self.spec.log_path})")

    def _await_exit(self, child: Child) -> None:
        """Wait for an orderly end, reading on so that the other side cannot block on a full socket."""
        deadline = self._clock() + self.spec.stop_grace_s
        while child.exit_code() is None and not child.link.closed and self._clock() < deadline:
            self._step(LOOK_S)

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._asks.give_up()
        self._child = None
        self._info = None
        self._moved_before += self._moved
        self._moved = 0
        self._inside.clear()
        self._results.clear()
        self._pieces.clear()
