"""Price versions in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql import codec, dialect, tables, trail
from infra.sql.shelf import Shelf, all_of
from jobs.errors import Conflict
from jobs.model import Price
from jobs.pricing import show_price
from jobs.tenancy import ITSELF

_prices = tables.prices.c

_NEWEST = sa.select(_prices.price).where(_prices.model == sa.bindparam("of_model")).order_by(_prices.id.desc()).limit(1)


class SqlPrices(Shelf):
    """`jobs.ports.book.PriceStore`."""

    def set_price(self, price: Price, actor: str = ITSELF) -> None:
        def work(connection: sa.Connection) -> None:
            new = {"model": price.model, "version": price.version, "price": codec.encode(price)}
            if dialect.insert_new(connection, tables.prices, new):
                said = f"{show_price(price)}, version {price.version}"
                at = self._db.now(connection)
                trail.write(connection, "price.set", actor=actor, tenant="", subject=price.model, detail=said, at=at)
                return
            same = sa.select(_prices.price).where(_prices.model == price.model, _prices.version == price.version)
            if codec.decode(Price, connection.execute(same).scalar_one()) != price:
                raise Conflict(reason=f"price version {price.version} of {price.model} has other numbers already")

        self._db.write(work)

    def price(self, model: str) -> Price | None:
        text = self._db.ask(lambda c: c.execute(_NEWEST, {"of_model": model}).scalar_one_or_none())
        return None if text is None else codec.decode(Price, text)

    def prices(self) -> list[Price]:
        query = sa.select(_prices.price).order_by(_prices.model, _prices.id.desc())
        return [codec.decode(Price, text) for (text,) in self._db.ask(all_of(query))]
