"""The ledger: double entry, append-only, integer pico-units. A debit is positive, a credit negative.

Accounts: `tenant:<tenant>:usage` (what the tenant owes), `platform:revenue:<model>`, and for repeated work
`platform:waste` against `platform:capacity`. Every transaction sums to zero.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.errors import LedgerBroken
from jobs.model import Job, Price, Usage, Value
from jobs.pricing import TOKEN_CLASSES, amount, amounts
from jobs.requests import Posting

GENESIS = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Value):
    """One line of a transaction. `txn` is the charge or waste key; `line` counts inside it.

    job, task: whose work it was; an interactive request has no job, and its id for a task. tokens: of `token_class`, 0
    on balancing lines. at: seconds since the epoch.
    """

    txn: str
    line: int
    kind: str
    account: str
    amount_pico: int
    currency: str
    tenant: str
    project: str
    tags: Mapping[str, str] = field(default_factory=dict)
    creator: str = ""
    job: str = ""
    task: str = ""
    model: str = ""
    price_version: str = ""
    token_class: str = ""
    tokens: int = 0
    at: float = 0.0


def charge(job: Job, task: str, usage: Usage, at: float) -> tuple[Entry, ...]:
    """The entries for one task's usage at the job's frozen price. Charge key: the task."""
    return _entries(
        _of_job(job, task, at), f"use:{task}", "usage", _usage(job.tenant, job.spec.model, job.price, usage)
    )


def charge_request(posting: Posting) -> tuple[Entry, ...]:
    """The entries for an interactive request at its frozen price. Charge key: the request."""
    alike = {
        "currency": posting.price.currency,
        "tenant": posting.tenant,
        "project": posting.project,
        "tags": posting.tags,
        "creator": posting.creator,
        "task": posting.id,
        "model": posting.model,
        "price_version": posting.price.version,
        "at": posting.at,
    }
    lines = _usage(posting.tenant, posting.model, posting.price, posting.usage)
    return _entries(alike, f"use:{posting.id}", "usage", lines)


def waste(job: Job, task: str, epoch: int, cause: str, usage: Usage, at: float) -> tuple[Entry, ...]:
    """The entries for work that must be done again, at the price it would have had. Key: (task, epoch, cause)."""
    value = amount(
        job.price,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )
    tokens = usage.input_tokens + usage.cached_tokens + usage.output_tokens
    lines = [("platform:waste", value, "all", tokens), ("platform:capacity", -value, "", 0)]
    return _entries(_of_job(job, task, at), f"waste:{task}:{epoch}:{cause}", "waste", lines)


Line = tuple[str, int, str, int]
"""Account, pico-units, token class, tokens."""


def _usage(tenant: str, model: str, price: Price, usage: Usage) -> list[Line]:
    by_class = amounts(price, usage)
    tokens = {"input": usage.input_tokens, "cached": usage.cached_tokens, "output": usage.output_tokens}
    lines = [(f"tenant:{tenant}:usage", by_class[c], c, tokens[c]) for c in TOKEN_CLASSES]
    return [*lines, (f"platform:revenue:{model}", -sum(by_class.values()), "", 0)]


def _of_job(job: Job, task: str, at: float) -> dict[str, Any]:
    """What all entries for a task have alike."""
    return {
        "currency": job.price.currency,
        "tenant": job.tenant,
        "project": job.project,
        "tags": job.tags,
        "creator": job.creator,
        "job": job.id,
        "task": task,
        "model": job.spec.model,
        "price_version": job.price.version,
        "at": at,
    }


def _entries(alike: Mapping[str, Any], txn: str, kind: str, lines: Sequence[Line]) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            txn=txn,
            line=number,
            kind=kind,
            account=account,
            amount_pico=pico,
            token_class=token_class,
            tokens=tokens,
            **alike,
        )
        for number, (account, pico, token_class, tokens) in enumerate(lines)
    )


def balances(entries: Iterable[Entry]) -> dict[tuple[str, str], int]:
    """(account, currency) → pico-units."""
    out: dict[tuple[str, str], int] = defaultdict(int)
    for entry in entries:
        out[entry.account, entry.currency] += entry.amount_pico
    return dict(out)


def check_balanced(entries: Iterable[Entry]) -> None:
    """Raise LedgerBroken naming the first transaction that does not sum to zero in its currency."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for entry in entries:
        sums[entry.txn, entry.currency] += entry.amount_pico
    for (txn, currency), total in sums.items():
        if total:
            raise LedgerBroken(reason=f"transaction {txn} is off by {total} pico-{currency}")


def seal(previous: str, entries: Sequence[Entry]) -> str:
    """The root of a block: a hash over the previous root and the entries' canonical text, hex."""
    digest = hashlib.sha256(previous.encode())
    for entry in entries:
        line = [getattr(entry, name) for name in Entry.__slots__]
        digest.update(json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
        digest.update(b"\n")
    return digest.hexdigest()
