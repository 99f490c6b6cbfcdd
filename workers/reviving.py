"""An engine that died is started again, with growing pauses, unless it dies without finishing a row."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from jobs.errors import EngineDied, Unavailable
from jobs.ports.clock import Clock
from jobs.ports.engine import Engine
from jobs.retry import Backoff

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Reviver:
    """restart, fruitless_deaths: as in `WorkerPolicy`."""

    engine: Engine
    clock: Clock
    restart: Backoff
    fruitless_deaths: int
    _deaths_since_row: int = 0
    _rows_at_death: int = 0

    def note(self, death: EngineDied, rows: int) -> None:
        """rows: that it has finished since its first start. Raises EngineDied when the fault is not in the rows."""
        self._deaths_since_row = 1 if rows > self._rows_at_death else self._deaths_since_row + 1
        self._rows_at_death = rows
        if self._deaths_since_row >= self.fruitless_deaths:
            raise EngineDied(
                model=death.model,
                reason=f"{self._deaths_since_row} times in a row without finishing a row: {death.reason}",
            )

    def start_again(self) -> None:
        """Raises what the last attempt raised."""
        attempt = 0
        while True:
            try:
                self.engine.start()
            except Unavailable as error:
                attempt += 1
                wait_s = self.restart.wait_s(attempt)
                if wait_s is None:
                    raise
                log.error("engine_start_failed", reason=error.sentence, again_in_s=wait_s)
                self.clock.sleep(wait_s)
            else:
                return
