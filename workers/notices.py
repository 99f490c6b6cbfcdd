"""A machine that is about to be taken away: its worker leaves once, in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Notice:
    """`step` again and again. look: the notice, or None while there is none. leave: drains the worker."""

    look: Callable[[], str | None]
    leave: Callable[[], None]
    told: bool = False

    def step(self) -> None:
        """Once it was told there is nothing to look for any more."""
        if self.told or (notice := self.look()) is None:
            return
        self.told = True
        log.warning("machine_to_be_taken_away", notice=notice)
        self.leave()
