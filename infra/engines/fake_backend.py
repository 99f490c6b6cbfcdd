"""The fake engine: no model, but the same port, speed limits and faults of a real one. For tests and dry demos."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Sequence

from infra.engines import fake_text
from infra.engines.backend import Deliver, Die, StartFailed, Tell
from infra.engines.fake_answers import Flavour, flavour_of
from infra.engines.fake_args import read_args
from infra.engines.fake_core import TICK_S, FakeCore
from infra.engines.fake_schema import parse_schema
from infra.engines.spec import EngineSpec
from jobs.ports.engine import EngineInfo, EngineRequest, Occupancy, RequestProfile

WARNING = "FAKE ENGINE: its output is made-up text, not a model's. Use it for trying and testing only."
_log = logging.getLogger("nightmill.engine.fake")


class FakeBackend:
    """Runs a `FakeCore` in a thread, on the real clock."""

    def __init__(self, spec: EngineSpec, deliver: Deliver, tell: Tell) -> None:
        self._args = read_args(spec.engine_args)
        self._spec = spec
        self._core = FakeCore(self._args)
        self._deliver = deliver
        self._tell = tell
        self._turn = threading.Condition()
        self._flavours: dict[str, Flavour] = {}
        self._closed = False

    def check_schema(self, schema: str) -> None:
        """Refuse what no instance can be made for."""
        parse_schema(schema)

    def load(self) -> EngineInfo:
        """Wait as long as asked, then start to work."""
        _log.warning(WARNING)
        if self._args.max_num_seqs < 1:
            raise StartFailed(f"max_num_seqs must be at least 1, not {self._args.max_num_seqs}")
        time.sleep(self._args.start_s)
        threading.Thread(target=self._work, name="fake-engine", daemon=True).start()
        embeds = self._spec.kind == "embedding"
        return EngineInfo(
            engine="fake",
            version="1",
            model=self._spec.model,
            kind=self._spec.kind,
            max_model_len=self._args.max_model_len,
            max_num_seqs=self._args.max_num_seqs,
            block_size=fake_text.BLOCK_TOKENS,
            embedding_size=self._args.embedding_size if embeds else None,
        )

    def submit(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        """Queue rows and wake the worker."""
        flavour = self._flavours.get(profile.key)
        if flavour is None:
            flavour = self._flavours[profile.key] = flavour_of(profile)
        with self._turn:
            self._core.add(flavour, requests)
            self._turn.notify()

    def forget(self, keys: Sequence[str]) -> None:
        """Waiting rows have their flavour with them."""
        for key in keys:
            self._flavours.pop(key, None)

    def abort(self, ids: Sequence[int]) -> None:
        """Mark rows and wake the worker."""
        with self._turn:
            self._core.abort(ids)
            self._turn.notify()

    def tokens_moved(self) -> int:
        """Tokens of finished rows, plus a tick now and then for those that run."""
        return self._core.moved

    def occupancy(self) -> Occupancy:
        """It has no cache."""
        return self._core.occupancy()

    def close(self) -> None:
        """Stop working."""
        with self._turn:
            self._closed = True
            self._turn.notify()

    def _work(self) -> None:
        with self._turn:
            while not self._closed:
                done = self._core.advance(time.monotonic())
                if pieces := self._core.take_pieces():
                    self._tell(pieces)
                if done:
                    self._deliver(done)
                if self._core.dead:
                    _log.error("fake_fault: dying as told")
                    os.kill(os.getpid(), signal.SIGKILL)
                self._turn.wait(self._pause_s())

    def _pause_s(self) -> float | None:
        at = self._core.next_at()
        return None if at is None else min(TICK_S, max(0.0, at - time.monotonic()))


def make(spec: EngineSpec, deliver: Deliver, tell: Tell, _die: Die) -> FakeBackend:
    """The backend's maker."""
    return FakeBackend(spec, deliver, tell)
