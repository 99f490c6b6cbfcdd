"""What must be true of a cluster's job that ended, whatever died on the way: compared with a quiet run of the same."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.model import Job, TaskState
from jobs.ports.store import Store
from tests.chaos.checker import differences

OPEN = frozenset({TaskState.QUEUED, TaskState.RELEASED, TaskState.LEASED})
WASTE = "waste"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """All that a user and the platform have of a job. table: what is published, in row order.

    files: name → SHA-256 of what lies in the folder; charges: transaction of usage → its lines; spent: class →
    (tokens, pico-units). parts: URIs on the manifest in the database. unsealed: the job's `_SUCCESS` is not noted.
    """

    state: str
    table: pa.Table
    manifest: Mapping[str, Any]
    files: Mapping[str, str]
    usage: Mapping[str, Any]
    amount_pico: int
    charges: Mapping[str, int]
    spent: Mapping[str, tuple[int, int]]
    wasted_tokens: int
    wasted_pico: int
    reservations: Mapping[str, int] = field(default_factory=dict)
    open_tasks: Sequence[str] = ()
    parts: Sequence[str] = ()
    book: Sequence[str] = ()
    unsealed: bool = False

    @property
    def tokens(self) -> int:
        """That the tenant pays for."""
        return sum(tokens for tokens, _ in self.spent.values())


def read(store: Store, job_id: str, folder: Mapping[str, bytes]) -> Ended:
    """folder: what lies published, by name below the job's folder."""
    while store.fold().transactions:
        pass
    job = store.job(job_id)
    charges, spent, wasted = Counter[str](), defaultdict[str, list[int]](lambda: [0, 0]), [0, 0]
    for entry in store.entries(job_id=job_id):
        if entry.kind == WASTE:
            wasted = [wasted[0] + entry.tokens, wasted[1] + entry.amount_pico]
            continue
        charges[entry.txn] += 1
        if entry.account.startswith("tenant:"):
            sums = spent[entry.token_class]
            spent[entry.token_class] = [sums[0] + entry.tokens, sums[1] + entry.amount_pico]
    return Ended(
        state=str(job.state),
        table=_table(folder),
        manifest=json.loads(folder.get("_manifest.json", b"{}")),
        files={name: hashlib.sha256(data).hexdigest() for name, data in folder.items()},
        usage=_usage(job),
        amount_pico=job.amount_pico,
        charges=dict(charges),
        spent={name: (tokens, pico) for name, (tokens, pico) in spent.items()},
        wasted_tokens=wasted[0],
        wasted_pico=wasted[1],
        reservations=store.open_reservations(job_id),
        open_tasks=[task.id for task in store.tasks(job_id, OPEN)],
        parts=[part.uri for part in store.parts(job_id)],
        book=store.verify().faults,
        unsealed=any(other.id == job_id for other in store.unsealed()),
    )


def _table(folder: Mapping[str, bytes]) -> pa.Table:
    """As any reader reads it: names with a `_` or `.` in front are nobody's business."""
    files = [io.BytesIO(data) for name, data in sorted(folder.items()) if name[0] not in "_."]
    return pa.concat_tables([pq.read_table(file) for file in files]).sort_by("row") if files else pa.table({"row": []})


def _usage(job: Job) -> dict[str, Any]:
    usage = job.usage
    return {
        "rows": usage.rows,
        "input": usage.input_tokens,
        "cached": usage.cached_tokens,
        "output": usage.output_tokens,
        "outcomes": {str(name): count for name, count in usage.outcomes.items() if count},
    }


# ---- what is wrong ------------------------------------------------------------------------------------


def faults(ended: Ended, *, rows: int, quiet: Ended | None = None) -> list[str]:
    """A sentence each. rows: of the input. quiet: what the same job came to in a run where nothing died."""
    found = [
        *_rows(ended, rows),
        *_manifest(ended),
        *_files(ended),
        *_money(ended),
        *(f"the book: {fault}" for fault in ended.book),
    ]
    if ended.state != "completed":
        found.append(f"the job is {ended.state}")
    if ended.reservations:
        found.append(f"{len(ended.reservations)} reservations are open: {sorted(ended.reservations)[:3]}")
    if ended.open_tasks:
        found.append(f"{len(ended.open_tasks)} tasks are open: {ended.open_tasks[:3]}")
    if ended.unsealed:
        found.append("the job is not sealed")
    return found + ([] if quiet is None else differences(ended, quiet))


def _rows(ended: Ended, rows: int) -> list[str]:
    counts = Counter(ended.table["row"].to_pylist())
    twice = sorted(row for row, count in counts.items() if count > 1)
    missing = sorted(set(range(rows)) - set(counts))
    strange = sorted(set(counts) - set(range(rows)))
    return [
        f"{len(wrong)} rows {what}: {wrong[:10]}"
        for what, wrong in (("are there twice", twice), ("are missing", missing), ("are not the input's", strange))
        if wrong
    ]


def _manifest(ended: Ended) -> list[str]:
    """The manifest against the files, and the job's record against both."""
    table, usage = ended.table, ended.usage
    if not ended.manifest:
        return ["there is no manifest"]
    facts = {"rows": table.num_rows, "outcomes": dict(Counter(table["outcome"].to_pylist()))}
    facts |= {name: sum(table[name].to_pylist()) for name in _SUMMED}
    record = {
        "rows": usage["rows"],
        "outcomes": usage["outcomes"],
        "input_tokens": usage["input"] + usage["cached"],
        "cached_tokens": usage["cached"],
        "output_tokens": usage["output"],
        "amount_pico": ended.amount_pico,
    }
    found = [
        f"the manifest's {n} is {ended.manifest[n]}, not {to}" for n, to in facts.items() if ended.manifest[n] != to
    ]
    return found + [
        f"the record's {name} is {has}, not {facts[name]}" for name, has in record.items() if has != facts[name]
    ]


_SUMMED = ("input_tokens", "cached_tokens", "output_tokens", "amount_pico")


def _files(ended: Ended) -> list[str]:
    """Exactly the published parts, the manifest and `_SUCCESS`; each part as the manifest describes it."""
    sums = {part["name"]: part["checksum"] for part in ended.manifest.get("parts", [])}
    expected = {*sums, "_manifest.json", "_SUCCESS"}
    found = [f"{name} is missing" for name in sorted(expected - set(ended.files))]
    found += [f"{name} is left over" for name in sorted(set(ended.files) - expected) if name[:7] != "_parts/"]
    return found + [
        f"{name} has another checksum than the manifest says"
        for name, checksum in sums.items()
        if ended.files.get(name, checksum) != checksum
    ]


def _money(ended: Ended) -> list[str]:
    """Each part has one charge, and together they are what the record says."""
    tasks = {uri.rpartition("/")[2].rpartition("-")[0] for uri in ended.parts}
    charged = {txn.removeprefix("use:") for txn in ended.charges}
    found = [f"task {task} has no charge" for task in sorted(tasks - charged)]
    found += [f"task {task} is charged without a part" for task in sorted(charged - tasks)]
    found += [f"{txn} has {count} lines" for txn, count in ended.charges.items() if count != _LINES]
    owed = sum(pico for _, pico in ended.spent.values())
    if owed != ended.amount_pico:
        found.append(f"the tenant owes {owed} pico-units, the job's record says {ended.amount_pico}")
    if ended.wasted_pico:
        found.append("waste and capacity do not cancel out")
    return found


_LINES = 4
"""Three token classes and the revenue."""


def zombies(ended: Ended, dead_tokens: Sequence[str]) -> list[str]:
    """dead_tokens: of leases that ended while their worker was frozen: nothing of them may count."""
    return [
        f"{uri} was committed by a worker that woke up after its lease had ended"
        for uri in ended.parts
        for token in dead_tokens
        if uri.endswith(f"-{token}.parquet")
    ]
