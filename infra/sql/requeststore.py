"""Interactive requests in SQL: each is recorded and charged once, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, rows, tables
from infra.sql import tables_live as live
from infra.sql.shelf import Shelf
from jobs import ledger
from jobs.errors import Unavailable
from jobs.ledger import Entry
from jobs.moves import Answer
from jobs.requests import Posting

_requests = live.requests.c


class SqlRequests(Shelf):
    """`jobs.ports.live.PostingStore`."""

    def post_requests(self, postings: Sequence[Posting]) -> list[Answer]:
        """Raises the first error of a posting once all others have been tried alone; Unavailable at once."""
        if not postings:
            return []
        try:
            return self._post(postings)
        except Unavailable:
            raise
        except Exception:
            if len(postings) == 1:
                raise
        return self._post_each(postings)

    def _post(self, postings: Sequence[Posting]) -> list[Answer]:
        """At once: a client waits for its end, and the poster has grouped what ended meanwhile."""
        return self._db.write_all(_carry_out, postings, linger_s=0.0)

    def _post_each(self, postings: Sequence[Posting]) -> list[Answer]:
        answers, errors = [], []
        for posting in postings:
            try:
                answers += self._post([posting])
            except Exception as error:  # noqa: BLE001  # raised below, when the others are through
                errors.append(error)
        if errors:
            raise errors[0]
        return answers


def _carry_out(connection: sa.Connection, postings: list[Posting]) -> list[Answer]:
    """By id, so that two groups with the same requests wait for one another in one order; of the same the first."""
    by_id: dict[str, Posting] = {}
    for posting in sorted(postings, key=lambda posting: posting.id):
        by_id.setdefault(posting.id, posting)
    once = dialect.insert(connection, live.requests).on_conflict_do_nothing().returning(_requests.id)
    new = {row.id for row in connection.execute(once, [_row(posting) for posting in by_id.values()])}
    charges = [(posting, ledger.charge_request(posting)) for posting in by_id.values() if posting.id in new]
    if charges:
        connection.execute(tables.entries.insert(), [rows.entry_row(e) for _, entries in charges for e in entries])
        connection.execute(tables.inbox.insert(), [_letter(posting, entries) for posting, entries in charges])
    return [Answer.MADE if _first(new, posting.id) else Answer.ALREADY for posting in postings]


def _first(new: set[str], request_id: str) -> bool:
    """Whether it is new and was not told of before."""
    if request_id not in new:
        return False
    new.discard(request_id)
    return True


def _letter(posting: Posting, entries: Sequence[Entry]) -> dict[str, Any]:
    """The word to the folder: of no job, so it adds to no job's totals."""
    return {
        "txn": entries[0].txn,
        "kind": "usage",
        "job": "",
        "usage": codec.encode(posting.usage),
        "amount_pico": sum(entry.amount_pico for entry in entries if entry.account.startswith("tenant:")),
        "lines": len(entries),
    }


def _row(posting: Posting) -> dict[str, Any]:
    return {
        "id": posting.id,
        "tenant": posting.tenant,
        "project": posting.project,
        "tags": codec.encode(posting.tags),
        "creator": posting.creator,
        "model": posting.model,
        "asked_model": codec.storable(posting.asked_model),
        "endpoint": posting.endpoint,
        "pool": posting.pool,
        "worker": posting.worker,
        "price": codec.encode(posting.price),
        "usage": codec.encode(posting.usage),
        "outcome": posting.outcome,
        "first_token_s": posting.first_token_s,
        "seconds": posting.seconds,
        "at": posting.at,
    }


def posting_of(row: Any) -> Posting:
    """From a whole row of `requests`."""
    given = row._asdict()
    return Posting(
        **{
            **given,
            "tags": rows.tags_of(given["tags"]),
            "price": rows.price_of(given["price"]),
            "usage": rows.usage_of(given["usage"]),
        }
    )
