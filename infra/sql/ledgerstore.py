"""The ledger in SQL: folding, balances, entries, statements, verification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, folding, rows, tables
from infra.sql.audit import Audit
from infra.sql.shelf import Shelf, all_of
from jobs.ledger import Entry
from jobs.ports.book import Fold, StatementLine, VerifyReport
from jobs.pricing import TOKEN_CLASSES

_entries = tables.entries.c
_PAGE = 2000
_GIGA = 10**9
# SQLite's sum() fails beyond 64 bits, so thousands of millions and the rest are summed apart.
_GIGAS, _REST = sa.func.sum(_entries.amount_pico // _GIGA), sa.func.sum(_entries.amount_pico % _GIGA)
_LINE = (
    _entries.job, _entries.project, _entries.model, _entries.kind, _entries.token_class, _entries.currency,
    _entries.tags, _entries.creator,
)  # fmt: skip


_UNFOLDED = sa.select(tables.inbox.c.id).limit(1)


class SqlLedger(Shelf):
    """`jobs.ports.book.LedgerStore`."""

    def fold(self, max_entries: int = 5000) -> Fold:
        """Looks before it writes: an empty inbox costs no transaction."""
        if not self._db.ask(all_of(sa.select(tables.inbox.c.id).limit(1))):
            return Fold()
        return self._db.write(lambda c: folding.fold(c, max_entries, self._db.now(c)))

    def unfolded(self, job_ids: Sequence[str]) -> bool:
        def read(connection: sa.Connection) -> bool:
            these = dialect.among(connection, tables.inbox.c.job, list(job_ids))
            return connection.execute(_UNFOLDED.where(these)).first() is not None

        return bool(job_ids) and self._db.ask(read)

    def balances(self) -> dict[tuple[str, str], int]:
        found = self._db.ask(all_of(sa.select(tables.balances)))
        return {(row.account, row.currency): row.amount_pico for row in found}

    def entries(self, *, job_id: str | None = None, tenant: str | None = None) -> Iterator[Entry]:
        """By pages, so that no read transaction stays open while the caller works."""
        query = sa.select(_entries.id, *rows.entry_columns)
        if job_id is not None:
            query = query.where(_entries.job == job_id)
        if tenant is not None:
            query = query.where(_entries.tenant == tenant)
        after = 0
        while True:
            page = self._db.ask(all_of(query.where(_entries.id > after).order_by(_entries.id).limit(_PAGE)))
            yield from map(rows.entry_of, page)
            if len(page) < _PAGE:
                return
            after = page[-1].id

    def statement(self, tenant: str, *, since: float | None = None, until: float | None = None) -> list[StatementLine]:
        """`since` ≤ time of posting < `until`. Requests first, then by job, the oldest first; inside by token class."""
        query = (
            sa.select(*_LINE, _entries.price_version, sa.func.sum(_entries.tokens), _GIGAS, _REST)
            .where(_entries.tenant == tenant, _entries.account == f"tenant:{tenant}:usage")
            .group_by(*_LINE, _entries.price_version)
        )
        if since is not None:
            query = query.where(_entries.at >= since)
        if until is not None:
            query = query.where(_entries.at < until)
        found, examples = self._db.ask(lambda c: (c.execute(query).all(), _examples(c, tenant)))
        return sorted(_summed(_line(row, examples) for row in found), key=_place)

    def verify(self) -> VerifyReport:
        return self._db.survey(lambda connection: Audit(connection).report())


def _examples(connection: sa.Connection, tenant: str) -> set[tuple[str, ...]]:
    """(job,) of a tenant, and (model, price version) of requests, at a price that was only shipped for trying out."""
    jobs = connection.execute(sa.select(tables.jobs.c.id, tables.jobs.c.price).where(tables.jobs.c.tenant == tenant))
    prices = connection.execute(sa.select(tables.prices.c.price)).scalars()
    of_requests = [price for price in map(rows.price_of, prices) if price.example]
    of_jobs = {(row.id,) for row in jobs if rows.price_of(row.price).example}
    return of_jobs | {(price.model, price.version) for price in of_requests}


def _line(row: Any, examples: set[tuple[str, ...]]) -> StatementLine:
    job, project, model, kind, token_class, currency, tags, creator, version, tokens, gigas, rest = row
    return StatementLine(
        job=job,
        project=project,
        model=model,
        kind=kind,
        token_class=token_class,
        tokens=int(tokens),
        amount_pico=int(gigas) * _GIGA + int(rest),
        currency=currency,
        example_price=((job,) if job else (model, version)) in examples,
        creator=creator,
        tags=rows.tags_of(tags),
    )


def _summed(lines: Iterable[StatementLine]) -> Iterable[StatementLine]:
    """Requests at several versions of a price are one line."""
    found: dict[tuple[Any, ...], StatementLine] = {}
    for line in lines:
        alike = (*_place(line), line.project, line.currency, line.example_price, codec.encode(line.tags))
        had = found.get(alike)
        more = (0, 0) if had is None else (had.tokens, had.amount_pico)
        found[alike] = line.evolve(tokens=line.tokens + more[0], amount_pico=line.amount_pico + more[1])
    return found.values()


def _place(line: StatementLine) -> tuple[Any, ...]:
    known = line.token_class in TOKEN_CLASSES
    rank = TOKEN_CLASSES.index(line.token_class) if known else len(TOKEN_CLASSES)
    return line.job, line.model, line.creator, line.kind, rank, line.token_class
