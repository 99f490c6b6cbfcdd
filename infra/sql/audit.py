"""Reads the whole book and says what is false in it. Memory follows the block, not the book."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, requeststore, rows, tables
from infra.sql import tables_live as live
from jobs import ledger
from jobs.ledger import GENESIS, Entry
from jobs.model import Job, TaskState, Usage
from jobs.ports.book import VerifyReport
from jobs.requests import Posting

MAX_FAULTS = 1000
"""More sentences than this help nobody; the rest is counted."""

_PAGE = 200  # blocks, or unsealed transactions
_CHUNK = 500  # names in one IN list
_entries, _sealed, _blocks, _tasks = tables.entries.c, tables.sealed.c, tables.blocks.c, tables.tasks.c


class Audit:
    """One pass over a snapshot."""

    def __init__(self, connection: sa.Connection) -> None:
        self._db = connection
        self._faults: list[str] = []
        self._unsaid = 0
        self._jobs: dict[str, Job | None] = {}
        self._balances: dict[tuple[str, str], int] = defaultdict(int)
        self._totals: dict[str, tuple[Usage, int]] = {}
        self._entries = self._transactions = self._blocks = self._unsealed = 0

    def report(self) -> VerifyReport:
        self._chain()
        self._unfolded()
        self._lost_entries()
        self._compare_balances()
        self._compare_totals()
        self._uncharged()
        self._reservations()
        more = (f"and {self._unsaid} more",) if self._unsaid else ()
        return VerifyReport(
            entries=self._entries,
            transactions=self._transactions,
            blocks=self._blocks,
            unsealed=self._unsealed,
            faults=(*self._faults, *more),
        )

    def _fault(self, sentence: str) -> None:
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(sentence)
        else:
            self._unsaid += 1

    # ---- sealed blocks --------------------------------------------------------------------------

    def _chain(self) -> None:
        """Numbers without gaps, each root the hash over the one before and the block's entries."""
        previous = GENESIS
        for number, block in enumerate(self._all_blocks()):
            if block.block != number:
                self._fault(f"block {number} is missing: the next one is {block.block}")
                previous = block.previous
            if block.previous != previous:
                self._fault(f"block {block.block} does not follow the root of the block before it")
            self._check_block(block)
            previous = block.root

    def _all_blocks(self) -> Iterator[Any]:
        after = -1
        while True:
            query = sa.select(tables.blocks).where(_blocks.block > after).order_by(_blocks.block).limit(_PAGE)
            page = self._db.execute(query).all()
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].block

    def _check_block(self, block: Any) -> None:
        self._blocks += 1
        places = self._db.execute(
            sa.select(_sealed.position, _sealed.txn).where(_sealed.block == block.block).order_by(_sealed.position)
        ).all()
        if [place.position for place in places] != list(range(block.transactions)):
            self._fault(f"block {block.block} says {block.transactions} transactions and has {len(places)}, or gaps")
        entries = self._sealed_entries(block.block)
        if ledger.seal(block.previous, entries) != block.root or len(entries) != block.entries:
            self._fault(f"block {block.block} is not what was sealed: its {len(entries)} entries give another root")
        self._check_transactions(entries, sealed=True)

    def _sealed_entries(self, block: int) -> list[Entry]:
        query = (
            sa.select(*rows.entry_columns)
            .join_from(tables.sealed, tables.entries, _entries.txn == _sealed.txn)
            .where(_sealed.block == block)
            .order_by(_sealed.position, _entries.line)
        )
        return [rows.entry_of(row) for row in self._db.execute(query)]

    # ---- entries outside blocks -----------------------------------------------------------------

    def _unfolded(self) -> None:
        """What the folder has not reached yet is part of the book; only its block and its balances trail."""
        inbox, after = tables.inbox.c, 0
        while True:
            query = sa.select(inbox.id, inbox.txn).where(inbox.id > after).order_by(inbox.id).limit(_PAGE)
            page = self._db.execute(query).all()
            wanted = sa.select(*rows.entry_columns).where(_entries.txn.in_([letter.txn for letter in page]))
            found = [rows.entry_of(row) for row in self._db.execute(wanted.order_by(_entries.txn, _entries.line))]
            self._unsealed += len(found)
            self._check_transactions(found, sealed=False)
            if len(page) < _PAGE:
                return
            after = page[-1].id

    def _lost_entries(self) -> None:
        query = (
            sa.select(_entries.txn)
            .distinct()
            .where(
                ~sa.exists().where(_sealed.txn == _entries.txn),
                ~sa.exists().where(tables.inbox.c.txn == _entries.txn),
            )
        )
        for (txn,) in self._db.execute(query):
            self._fault(f"transaction {txn} is in no block and not on its way into one")

    # ---- transactions ---------------------------------------------------------------------------

    def _check_transactions(self, entries: Sequence[Entry], *, sealed: bool) -> None:
        by_txn = {txn: list(lines) for txn, lines in groupby(entries, key=lambda entry: entry.txn)}
        usages = self._usages(by_txn)
        postings = self._postings(by_txn)
        for txn, lines in by_txn.items():
            self._transactions += 1
            self._entries += len(lines)
            self._check_sum(txn, lines)
            if lines[0].kind == "usage" and not lines[0].job:
                self._check_request(txn, lines, postings.get(txn))
            elif lines[0].kind in {"usage", "waste"}:
                self._check_task(txn, lines, usages.get(txn))
            if sealed:
                self._count(lines, usages.get(txn))

    def _check_sum(self, txn: str, lines: Sequence[Entry]) -> None:
        for currency in sorted({entry.currency for entry in lines}):
            total = sum(entry.amount_pico for entry in lines if entry.currency == currency)
            if total:
                self._fault(f"transaction {txn} is off by {total} pico-{currency}")

    def _check_request(self, txn: str, lines: Sequence[Entry], posting: Posting | None) -> None:
        if posting is None:
            self._fault(f"transaction {txn} is for a request that was not served: {lines[0].task}")
        elif ledger.charge_request(posting) != tuple(lines):
            self._fault(f"transaction {txn} is not the usage of {posting.id} at its price")

    def _check_task(self, txn: str, lines: Sequence[Entry], usage: Usage | None) -> None:
        first = lines[0]
        job = self._job(first.job)
        if job is None or usage is None:
            self._fault(f"transaction {txn} is for a task or job that has no such usage: {first.task} of {first.job}")
        elif self._expected(job, first, usage) != tuple(lines):
            self._fault(f"transaction {txn} is not the usage of {first.task} at the price of {first.job}")

    @staticmethod
    def _expected(job: Job, first: Entry, usage: Usage) -> tuple[Entry, ...]:
        if first.kind == "usage":
            return ledger.charge(job, first.task, usage, first.at)
        epoch, _, cause = first.txn.removeprefix(f"waste:{first.task}:").partition(":")
        return ledger.waste(job, first.task, int(epoch) if epoch.isdigit() else -1, cause, usage, first.at)

    def _usages(self, by_txn: dict[str, list[Entry]]) -> dict[str, Usage]:
        """txn → usage, as the tasks and the waste events have it."""
        waste = tables.wastes.c
        found: dict[str, Usage] = {}
        names = sorted({lines[0].task for lines in by_txn.values()})
        for at in range(0, len(names), _CHUNK):
            chunk = names[at : at + _CHUNK]
            charged = sa.select(_tasks.id, _tasks.usage).where(_tasks.id.in_(chunk), _tasks.usage.is_not(None))
            found |= {f"use:{row.id}": rows.usage_of(row.usage) for row in self._db.execute(charged)}
            wasted = sa.select(waste.task, waste.epoch, waste.cause, waste.usage).where(waste.task.in_(chunk))
            found |= {
                f"waste:{row.task}:{row.epoch}:{row.cause}": rows.usage_of(row.usage)
                for row in self._db.execute(wasted)
            }
        return found

    def _postings(self, by_txn: dict[str, list[Entry]]) -> dict[str, Posting]:
        """txn → the request, of those that are of requests."""
        found: dict[str, Posting] = {}
        names = sorted({lines[0].task for lines in by_txn.values() if not lines[0].job})
        for at in range(0, len(names), _CHUNK):
            these = sa.select(live.requests).where(live.requests.c.id.in_(names[at : at + _CHUNK]))
            found |= {f"use:{row.id}": requeststore.posting_of(row) for row in self._db.execute(these)}
        return found

    def _job(self, job_id: str) -> Job | None:
        if job_id not in self._jobs:
            row = self._db.execute(rows.jobs_with_totals.where(tables.jobs.c.id == job_id)).one_or_none()
            self._jobs[job_id] = None if row is None else rows.job_of(row)
        return self._jobs[job_id]

    def _count(self, lines: Sequence[Entry], usage: Usage | None) -> None:
        for entry in lines:
            self._balances[entry.account, entry.currency] += entry.amount_pico
        if lines[0].kind == "usage" and lines[0].job and usage is not None:
            so_far, amount = self._totals.get(lines[0].job, (Usage(), 0))
            charged = sum(entry.amount_pico for entry in lines if entry.account.startswith("tenant:"))
            self._totals[lines[0].job] = so_far.plus(usage), amount + charged

    # ---- what was folded from them --------------------------------------------------------------

    def _compare_balances(self) -> None:
        stored = {(row.account, row.currency): row.amount_pico for row in self._db.execute(sa.select(tables.balances))}
        for account, currency in sorted(stored.keys() | self._balances.keys()):
            has, should = stored.get((account, currency), 0), self._balances.get((account, currency), 0)
            if has != should:
                self._fault(f"the balance of {account} is {has} pico-{currency}, its entries give {should}")

    def _compare_totals(self) -> None:
        stored = {
            row.job: (rows.usage_of(row.usage), row.amount_pico)
            for row in self._db.execute(sa.select(tables.job_totals))
        }
        void = tables.jobs.c.void
        for job, text in self._db.execute(sa.select(tables.jobs.c.id, void).where(void.is_not(None))):
            usage, amount = self._totals.get(job, (Usage(), 0))
            self._totals[job] = usage.plus(rows.usage_of(text)), amount
        for job in sorted(stored.keys() | self._totals.keys()):
            has, should = stored.get(job, (Usage(), 0)), self._totals.get(job, (Usage(), 0))
            if has != should:
                self._fault(f"the totals of {job} are {codec.encode(has)}, its charges give {codec.encode(should)}")

    # ---- tasks ----------------------------------------------------------------------------------

    def _uncharged(self) -> None:
        """Done, on the manifest, or a request, without a charge; and results of a task that is not through."""
        charged = sa.exists().where(_entries.txn == "use:" + _tasks.id)
        on_manifest = sa.exists().where(tables.parts.c.task == _tasks.id)
        through = sa.or_(_tasks.state == TaskState.DONE.value, on_manifest)
        for (task,) in self._db.execute(sa.select(_tasks.id).where(through, ~charged)):
            self._fault(f"task {task} has results and no charge")
        unfinished = _tasks.state.not_in([TaskState.DONE.value, TaskState.SPLIT.value])
        for (task,) in self._db.execute(sa.select(_tasks.id).where(unfinished, sa.or_(charged, on_manifest))):
            self._fault(f"task {task} is charged or has results, and is not done")
        unpaid = ~sa.exists().where(_entries.txn == "use:" + live.requests.c.id)
        for (request,) in self._db.execute(sa.select(live.requests.c.id).where(unpaid)):
            self._fault(f"request {request} was served and has no charge")

    def _reservations(self) -> None:
        held = tables.reservations.c
        is_open = sa.exists().where(held.task == _tasks.id, held.epoch == _tasks.epoch, held.state == "open")
        working = _tasks.state.in_([TaskState.RELEASED.value, TaskState.LEASED.value])
        for (task,) in self._db.execute(sa.select(_tasks.id).where(working, ~is_open)):
            self._fault(f"task {task} is released or leased without a reservation")
        query = (
            sa.select(held.task, _tasks.state)
            .join_from(tables.reservations, tables.tasks, _tasks.id == held.task, isouter=True)
            .where(
                held.state == tables.literal("open"),
                sa.or_(_tasks.id.is_(None), ~working, held.epoch != _tasks.epoch),
            )
        )
        for task, state in self._db.execute(query):
            self._fault(f"task {task} is {state or 'unknown'} and still holds a reservation")
