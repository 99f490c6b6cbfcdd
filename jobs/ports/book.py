"""The book's part of the database port: entries, balances, statements and prices. See `jobs.ports.store`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.ledger import Entry
from jobs.model import Price, Value
from jobs.tenancy import ITSELF


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold(Value):
    """What one pass of the folder did. transactions: inbox rows drained; entries: sealed."""

    transactions: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Value):
    """What `verify` looked at. faults: one sentence each, empty when the book is sound."""

    entries: int = 0
    transactions: int = 0
    blocks: int = 0
    unsealed: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine(Value):
    """One line of a cost statement: a job's postings of one kind, by token class ("" where none).

    Interactive requests have no job (""): their lines are summed by model and key (`creator`), and by whether the price
    was an example.
    """

    job: str
    project: str
    model: str
    kind: str
    token_class: str
    tokens: int
    amount_pico: int
    currency: str
    example_price: bool
    creator: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


class LedgerStore(Protocol):
    """The book. Entries come in with the commits; here they are folded, sealed and read."""

    def fold(self, max_entries: int = 5000) -> Fold:
        """Drain the inbox: balances, job totals, one sealed block; one transaction. Any process may call it."""
        ...

    def unfolded(self, job_ids: Sequence[str]) -> bool:
        """Whether something of any of these jobs is still in the inbox."""
        ...

    def balances(self) -> dict[tuple[str, str], int]:
        """(account, currency) → pico-units, as folded."""
        ...

    def entries(self, *, job_id: str | None = None, tenant: str | None = None) -> Iterator[Entry]:
        """In the order they were written."""
        ...

    def statement(self, tenant: str, *, since: float | None = None, until: float | None = None) -> list[StatementLine]:
        """Usage postings of a tenant summed by job, model, key and token class; waste is the platform's, not here."""
        ...

    def verify(self) -> VerifyReport:
        """Read the whole book: every transaction balances, balances equal entries, the hash chain is whole.

        Also: every task that is done (or was drained) has its charge, equal to its usage at the job's price; and so has
        every request that was served.
        """
        ...


class PriceStore(Protocol):
    """Price versions. A model's current price is its newest version; old versions stay."""

    def set_price(self, price: Price, actor: str = ITSELF) -> None:
        """Write a version, with its audit event. The same again changes nothing; other numbers are a Conflict."""
        ...

    def price(self, model: str) -> Price | None: ...

    def prices(self) -> list[Price]:
        """All versions, newest first in each model."""
        ...
