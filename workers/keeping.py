"""Runs the keeper of batches: every open batch is looked at again and again, a few at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from jobs.batching import Keeper
from jobs.errors import NightmillError
from jobs.filing import Batch
from jobs.ports.clock import Clock

log = structlog.get_logger()

_LOOK_AGAIN_S = 5.0
"""After a fault a batch is let alone for so long."""
_TIDY_S = 60.0


@dataclass(slots=True, kw_only=True)
class Keeping:
    """`step` again and again. threads: checking five million lines must not hold up the batch of one line beside it.

    tidy: what is done about once a minute beside the batches (old idempotency keys, bytes of deleted files).
    """

    keeper: Keeper
    threads: ThreadPoolExecutor
    clock: Clock
    tidy: Callable[[], object] = lambda: None
    _busy: dict[str, Future[Batch]] = field(default_factory=dict)
    _rests: dict[str, float] = field(default_factory=dict)
    _tidied_s: float | None = None

    def step(self) -> int:
        """Begin on every open batch that nobody is at; how many. Raises DatabaseUnavailable."""
        self._collect()
        now_s = self.clock.monotonic()
        self._rests = {name: until_s for name, until_s in self._rests.items() if until_s > now_s}
        begun = 0
        for batch in self.keeper.open_batches():
            if batch.id not in self._busy and batch.id not in self._rests:
                self._busy[batch.id] = self.threads.submit(self.keeper.attend, batch)
                begun += 1
        self._tidy(now_s)
        return begun

    def close(self) -> None:
        """Wait for what is under way."""
        self.threads.shutdown(wait=True, cancel_futures=True)

    def _collect(self) -> None:
        for name, future in list(self._busy.items()):
            if not future.done():
                continue
            del self._busy[name]
            error = future.exception()
            if error is None:
                continue
            self._rests[name] = self.clock.monotonic() + _LOOK_AGAIN_S
            reason = error.sentence if isinstance(error, NightmillError) else repr(error)
            log.error("batch_held_up", batch=name, reason=reason, exc_info=error, silent=True)

    def _tidy(self, now_s: float) -> None:
        if self._tidied_s is None or now_s - self._tidied_s >= _TIDY_S:
            self._tidied_s = now_s
            self.tidy()
