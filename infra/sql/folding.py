"""The folder: turns what commits left in the inbox into balances, job totals and one sealed block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, rows, tables
from jobs import ledger
from jobs.ledger import GENESIS, Entry
from jobs.model import Usage
from jobs.ports.book import Fold

_inbox, _entries = tables.inbox.c, tables.entries.c
_CHUNK = 500  # names in one IN list
_HEARD = tables.inbox.delete().where(_inbox.id == sa.bindparam("of_id"))


def fold(connection: sa.Connection, max_entries: int, now: float, *, jobs: Sequence[str] = ()) -> Fold:
    """One pass, over all letters or those of some jobs. Whole transactions only; at least one, however large."""
    dialect.lock_ledger(connection)
    letters = _letters(connection, max_entries, jobs)
    if not letters:
        return Fold()
    entries = _entries_of(connection, [letter.txn for letter in letters])
    _seal(connection, [letter.txn for letter in letters], entries, now)
    _add_balances(connection, entries)
    add_totals(connection, _by_job(letter for letter in letters if letter.kind == "usage" and letter.job))
    connection.execute(_HEARD, [{"of_id": letter.id} for letter in letters])
    return Fold(transactions=len(letters), entries=len(entries))


def _letters(connection: sa.Connection, max_entries: int, jobs: Sequence[str]) -> list[Any]:
    oldest = sa.select(tables.inbox).order_by(_inbox.id).limit(max(1, max_entries))
    if jobs:
        oldest = oldest.where(dialect.among(connection, _inbox.job, jobs))
    found: list[Any] = []
    room = max_entries
    for row in connection.execute(oldest):
        room -= row.lines
        if found and room < 0:
            break
        found.append(row)
    return found


def _entries_of(connection: sa.Connection, txns: Sequence[str]) -> list[Entry]:
    """In the order of the transactions, then of their lines."""
    by_txn: dict[str, list[Entry]] = {txn: [] for txn in txns}
    query = sa.select(*rows.entry_columns).order_by(_entries.txn, _entries.line)
    for row in _rows(connection, query, _entries.txn, txns):
        by_txn[row.txn].append(rows.entry_of(row))
    return [entry for txn in txns for entry in by_txn[txn]]


def _seal(connection: sa.Connection, txns: Sequence[str], entries: Sequence[Entry], now: float) -> None:
    block = tables.blocks.c
    last = connection.execute(sa.select(block.block, block.root).order_by(block.block.desc()).limit(1)).one_or_none()
    number, previous = (last.block + 1, last.root) if last else (0, GENESIS)
    connection.execute(
        tables.blocks.insert(),
        {
            "block": number,
            "previous": previous,
            "root": ledger.seal(previous, entries),
            "transactions": len(txns),
            "entries": len(entries),
            "at": now,
        },
    )
    places = [{"block": number, "position": position, "txn": txn} for position, txn in enumerate(txns)]
    connection.execute(tables.sealed.insert(), places)


def _add_balances(connection: sa.Connection, entries: Sequence[Entry]) -> None:
    balance = tables.balances.c
    added = ledger.balances(entries)
    before: dict[tuple[str, str], int] = {}
    accounts = sorted({account for account, _ in added})
    for row in _rows(connection, sa.select(tables.balances), balance.account, accounts):
        before[row.account, row.currency] = row.amount_pico
    after = [
        {"account": key[0], "currency": key[1], "amount_pico": before.get(key, 0) + pico} for key, pico in added.items()
    ]
    dialect.upsert(connection, tables.balances, after, keys=("account", "currency"))


Totals = Mapping[str, tuple[Usage, int]]
"""job → (usage, pico-units that its tenant pays)."""


def _by_job(letters: Iterable[Any]) -> Totals:
    found: dict[str, tuple[Usage, int]] = {}
    for letter in letters:
        usage, amount = found.get(letter.job, (Usage(), 0))
        found[letter.job] = usage.plus(rows.usage_of(letter.usage)), amount + letter.amount_pico
    return found


def add_totals(connection: sa.Connection, added: Totals) -> None:
    """Add to what the jobs' records show."""
    total = tables.job_totals.c
    after = dict(added)
    for row in _rows(connection, sa.select(tables.job_totals), total.job, sorted(added)):
        usage, amount = added[row.job]
        after[row.job] = rows.usage_of(row.usage).plus(usage), row.amount_pico + amount
    new = [{"job": job, "usage": codec.encode(usage), "amount_pico": pico} for job, (usage, pico) in after.items()]
    dialect.upsert(connection, tables.job_totals, new, keys=("job",))


def _rows(
    connection: sa.Connection, query: sa.Select[Any], column: sa.ColumnElement[str], names: Sequence[str]
) -> Iterator[Any]:
    """Those of a query whose column is one of the names."""
    for at in range(0, len(names), _CHUNK):
        these = dialect.among(connection, column, names[at : at + _CHUNK])
        yield from connection.execute(query.where(these))
