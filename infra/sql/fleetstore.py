"""Leaderships and measured speeds in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from infra.sql import dialect, tables
from infra.sql.shelf import Shelf
from jobs.ports.store import Leader

_leaders, _speeds = tables.leaders.c, tables.speeds.c

_SPEED = sa.select(tables.speeds).where(_speeds.model == sa.bindparam("of_model"))


class SqlFleet(Shelf):
    """`jobs.ports.store.FleetStore`."""

    def lead(self, scope: str, owner: str) -> Leader:
        def work(connection: sa.Connection) -> Leader:
            new = {"owner": owner, "at": self._db.now(connection)}
            first = dialect.insert(connection, tables.leaders).values(scope=scope, epoch=1, **new)
            taken = first.on_conflict_do_update(
                index_elements=["scope"], set_={"epoch": _leaders.epoch + 1, **new}
            ).returning(_leaders.epoch)
            return Leader(scope=scope, epoch=connection.execute(taken).scalar_one(), owner=owner)

        return self._db.write(work)

    def leader(self, scope: str) -> Leader:
        """Epoch 0 where nobody ever led."""
        query = sa.select(tables.leaders).where(_leaders.scope == scope)
        row = self._db.ask(lambda c: c.execute(query).one_or_none())
        if row is None:
            return Leader(scope=scope, epoch=0, owner="")
        return Leader(scope=scope, epoch=row.epoch, owner=row.owner)

    def note_speed(self, model: str, *, rows_per_s: float, output_tokens_per_s: float) -> None:
        def work(connection: sa.Connection) -> None:
            row = {
                "model": model,
                "rows_per_s": rows_per_s,
                "output_tokens_per_s": output_tokens_per_s,
                "at": self._db.now(connection),
            }
            dialect.upsert(connection, tables.speeds, [row], keys=("model",))

        self._db.write(work, durable=False)

    def speed(self, model: str) -> tuple[float, float] | None:
        row = self._db.ask(lambda c: c.execute(_SPEED, {"of_model": model}).one_or_none())
        return None if row is None else (row.rows_per_s, row.output_tokens_per_s)
