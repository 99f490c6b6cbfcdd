"""The state of rate limits in SQL, which all replicas of the API share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import dialect
from infra.sql import tables_live as live
from infra.sql.before import Before
from infra.sql.shelf import Shelf
from jobs.allotting import NS, Shared
from jobs.ports.limiting import Gauge, Kind, Level, Round, Verdict

_rates, _leases = live.rate_state.c, live.slot_leases.c
_GONE = live.slot_leases.delete().where(
    _leases.scope == sa.bindparam("of_scope"), _leases.holder == sa.bindparam("of_holder")
)
_KEPT_S = 60.0
"""A claim that lapsed so long ago is removed by the next who asks."""


class SqlRates(Shelf):
    """`jobs.ports.limiting.RateStore`."""

    def take_rates(self, said: Round) -> list[Verdict]:
        """Not flushed: what a power cut forgets of it has nearly flowed off when the database is back."""
        before = Before()

        def work(connection: sa.Connection) -> list[Verdict]:
            # What was given back by a run whose commit was not answered may not be given back twice.
            this = said.evolve(back=[b for b in said.back if b[2] < 0]) if before.done else said
            before.done = True
            return self._judged(connection, this)

        return self._db.write(work, linger_s=0.0, durable=False)

    def rate_levels(self, limits: Sequence[tuple[Gauge, int]]) -> list[Level]:
        def read(connection: sa.Connection) -> list[Level]:
            scopes = {gauge.scope for gauge, _ in limits}
            now = self._db.now(connection)
            others = _places(_leases_of(connection, scopes), now)
            shared = Shared(now_ns=int(now * NS), tats=_tats(connection, scopes), others=others)
            return [shared.level(gauge, limit) for gauge, limit in limits]

        return self._db.ask(read) if limits else []

    def _judged(self, connection: sa.Connection, said: Round) -> list[Verdict]:
        asked = {demand.gauge for ask in said.asks for demand in ask}
        tats = _locked(connection, asked | {gauge for gauge, _, _ in said.back})
        now = self._db.now(connection)  # once nothing is waited for any more
        scopes = {gauge.scope for gauge in asked if gauge.kind is Kind.PLACES}
        leases = [row for row in _leases_of(connection, scopes) if row.holder != said.holder]
        shared = Shared(now_ns=int(now * NS), tats=dict(tats), others=_places(leases, now))
        verdicts = shared.decide(said)
        changed = [
            {"scope": gauge.scope, "kind": gauge.kind.value, "tat_ns": tat}
            for gauge, tat in sorted(shared.tats.items(), key=_order)
            if tats.get(gauge) != tat
        ]
        dialect.upsert(connection, live.rate_state, changed, keys=("scope", "kind"))
        _claim(connection, said.holder, shared.held, until=now + said.lease_s)
        _remove(connection, [(row.scope, row.holder) for row in leases if row.until < now - _KEPT_S])
        return verdicts


def _order(item: tuple[Gauge, int]) -> tuple[str, str]:
    return item[0].scope, item[0].kind


def _locked(connection: sa.Connection, gauges: Collection[Gauge]) -> dict[Gauge, int]:
    """Their tats, locked in the order of their keys. The row of a scope's places has none: it is there for its lock."""
    if not gauges:
        return {}
    scopes = {gauge.scope for gauge in gauges}
    found = _tats(connection, scopes, lock=True)
    if missing := sorted({(gauge.scope, gauge.kind.value) for gauge in gauges if gauge not in found}):
        new = [{"scope": scope, "kind": kind, "tat_ns": 0} for scope, kind in missing]
        connection.execute(dialect.insert(connection, live.rate_state).on_conflict_do_nothing(), new)
        found = _tats(connection, scopes, lock=True)
    return found


def _tats(connection: sa.Connection, scopes: Collection[str], *, lock: bool = False) -> dict[Gauge, int]:
    query = sa.select(live.rate_state).where(dialect.among(connection, _rates.scope, sorted(scopes)))
    query = query.order_by(_rates.scope, _rates.kind)
    rows = connection.execute(query.with_for_update() if lock else query)
    return {Gauge(row.scope, Kind(row.kind)): row.tat_ns for row in rows}


def _leases_of(connection: sa.Connection, scopes: Collection[str]) -> Sequence[Any]:
    if not scopes:
        return []
    query = sa.select(live.slot_leases).where(dialect.among(connection, _leases.scope, sorted(scopes)))
    return connection.execute(query).all()


def _places(leases: Sequence[Any], now: float) -> dict[str, int]:
    """Places that are held, by scope."""
    held: dict[str, int] = defaultdict(int)
    for row in leases:
        held[row.scope] += row.slots if row.until > now else 0
    return held


def _claim(connection: sa.Connection, holder: str, held: Mapping[str, int], *, until: float) -> None:
    claims = [
        {"scope": scope, "holder": holder, "slots": places, "until": until}
        for scope, places in sorted(held.items())
        if places
    ]
    dialect.upsert(connection, live.slot_leases, claims, keys=("scope", "holder"))
    _remove(connection, [(scope, holder) for scope, places in sorted(held.items()) if not places])


def _remove(connection: sa.Connection, leases: Sequence[tuple[str, str]]) -> None:
    if leases:
        connection.execute(_GONE, [{"of_scope": scope, "of_holder": holder} for scope, holder in leases])
