"""What the parts of the store stand on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from infra.sql.engine import Database

A = TypeVar("A")
B = TypeVar("B")


class Shelf:
    """One port's methods over the shared database."""

    def __init__(self, db: Database) -> None:
        self._db = db


def all_of(query: sa.Select[Any]) -> Callable[[sa.Connection], Sequence[sa.Row[Any]]]:
    """For `Database.ask`: the rows of a query."""
    return lambda connection: connection.execute(query).all()


def in_order(items: Sequence[A], key: Callable[[A], Any], work: Callable[[A], B]) -> list[B]:
    """What `work` makes of each item, in their places; carried out in the order of their keys, in which all lists lock
    its rows: two that share some cannot wait for each other.
    """
    order = sorted(range(len(items)), key=lambda place: key(items[place]))
    found = {place: work(items[place]) for place in order}
    return [found[place] for place in range(len(items))]
