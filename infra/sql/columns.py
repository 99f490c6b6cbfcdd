"""What the tables are made of: one metadata, the types, and a word for each kind of column."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from infra.sql.codec import storable

metadata = sa.MetaData()

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Text that sorts by its bytes on every database, which is also the quicker way to look a key up."""

Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite numbers rows by itself only in a column called INTEGER; its integers have 64 bits all the same."""


class _Named(sa.TypeDecorator[str]):
    """What a thing is called, by anybody: one that no database can hold is looked for as one that nothing has."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002  # as below
        return value if value is None or (value.isascii() and "\0" not in value) else storable(value)


Name = _Named().with_variant(_Named(collation="C"), "postgresql")
"""Text by which a row is found."""


class Amount(sa.TypeDecorator[int]):
    """A sum of pico-units, exact beyond 64 bits: decimal text on SQLite, NUMERIC on PostgreSQL."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        numeric: sa.types.TypeEngine[Any] = sa.Numeric(78, 0) if dialect.name == "postgresql" else sa.Text()
        return dialect.type_descriptor(numeric)

    def process_bind_param(self, value: int | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        return Decimal(value) if dialect.name == "postgresql" else str(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> int | None:  # noqa: ARG002  # the base's shape
        return None if value is None else int(value)


def key(name: str) -> sa.Column[Any]:
    """Part of the primary key, as text."""
    return sa.Column(name, Name, primary_key=True)


def number(name: str) -> sa.Column[Any]:
    """A whole number of up to 64 bits."""
    return sa.Column(name, sa.BigInteger, nullable=False)


def text(name: str) -> sa.Column[Any]:
    """Text."""
    return sa.Column(name, Text, nullable=False)


def maybe(name: str, kind: Any = Text) -> sa.Column[Any]:
    """What may be absent."""
    return sa.Column(name, kind, nullable=True)


def flag(name: str) -> sa.Column[Any]:
    """Yes or no."""
    return sa.Column(name, sa.Boolean, nullable=False)


def time(name: str) -> sa.Column[Any]:
    """Seconds since the epoch."""
    return sa.Column(name, sa.Double, nullable=False)


def where(text: str) -> dict[str, Any]:
    """A partial index: small, because few rows are in the state that is looked for."""
    return {"sqlite_where": sa.text(text), "postgresql_where": sa.text(text)}


def literal(value: str) -> sa.ColumnElement[str]:
    """A constant written into the statement: the planner takes a partial index only when it can read the value."""
    return sa.literal_column(f"'{value}'", sa.Text)
