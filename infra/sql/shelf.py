"""What the parts of the store stand on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql.engine import Database


class Shelf:
    """One port's methods over the shared database."""

    def __init__(self, db: Database) -> None:
        self._db = db


def all_of(query: sa.Select[Any]) -> Callable[[sa.Connection], Sequence[sa.Row[Any]]]:
    """For `Database.ask`: the rows of a query."""
    return lambda connection: connection.execute(query).all()
