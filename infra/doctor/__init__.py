"""What is there and what is not: each check looks, changes nothing but a file of its own, and knows the mend."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from infra.doctor import backends, here
from infra.doctor.check import Check, Level
from infra.settings import Settings
from jobs.errors import NightmillError

__all__ = ["Check", "Level", "examine"]


def examine(settings: Settings) -> Iterator[Check]:
    """All checks, one after the other; the database is not created."""
    checks: dict[str, Callable[[Settings], Iterator[Check]]] = {
        "python": here.python,
        "engine": here.engine,
        "cpu": here.cpu,
        "memory": here.memory,
        "home": here.home,
        "disk": here.disk,
        "database": backends.database,
        "queue": backends.queue,
        "ledger": backends.ledger,
        "models": backends.models,
        "clock": here.clock,
    }
    for name, check in checks.items():
        try:
            yield from check(settings)
        except NightmillError as error:
            yield Check(name=name, level=Level.FAIL, found=error.sentence, mend="as the sentence says")
        except (OSError, sqlite3.Error) as error:
            yield Check(name=name, level=Level.FAIL, found=f"{error}", mend=f"see that {settings.home} can be used")
