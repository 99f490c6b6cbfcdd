"""What the parts of the store stand on."""

from __future__ import annotations

from infra.sql.engine import Database


class Shelf:
    """One port's methods over the shared database."""

    def __init__(self, db: Database) -> None:
        self._db = db
