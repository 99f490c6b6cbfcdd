"""What must be true of a job that ended, whatever died on the way: compared with the same job in a quiet run."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from infra.sql import open_store
from tests.chaos.scene import Scene, leftovers

PLATFORM = frozenset({"platform:waste", "platform:capacity"})
"""Accounts that repeated work is posted to: they alone may differ from a quiet run."""

HALF = re.compile(r"\._(manifest\.json|SUCCESS)\.[0-9a-f]+\.tmp")
"""What is left of a small file that was being written when the process died; hidden, and nobody's business."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """All that a user and the platform have of a job. table: in row order; spent: class → (tokens, pico-units)."""

    table: pa.Table
    manifest: dict[str, Any]
    state: str
    usage: dict[str, Any]
    amount_pico: int
    spent: dict[str, tuple[int, int]]
    balances: dict[str, int]


def read(scene: Scene) -> Ended:
    """Read an ended job; folds what the last process left in the inbox, as `nightmill ledger` does."""
    record = scene.job()
    assert record is not None
    store = open_store(scene.home)
    try:
        while store.fold().transactions:
            pass
        job = store.job(record["id"])
        spent: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for line in store.statement(job.tenant):
            if line.job == job.id:
                tokens, pico = spent[line.token_class]
                spent[line.token_class] = tokens + line.tokens, pico + line.amount_pico
        balances = {account: pico for (account, _), pico in store.balances().items()}
    finally:
        store.close()
    folder = scene.folder_of_job()
    usage = {"rows": job.usage.rows, "input": job.usage.input_tokens, "cached": job.usage.cached_tokens}
    usage |= {"output": job.usage.output_tokens, "outcomes": {str(k): n for k, n in job.usage.outcomes.items() if n}}
    return Ended(
        table=read_folder(folder),
        manifest=json.loads((folder / "_manifest.json").read_text()),
        state=str(job.state),
        usage=usage,
        amount_pico=job.amount_pico,
        spent=dict(spent),
        balances=balances,
    )


def read_folder(folder: Path) -> pa.Table:
    """As any reader reads it: a data set, whose `_` and `.` names are nobody's business."""
    return ds.dataset(folder, format="parquet").to_table().sort_by("row")


def faults(scene: Scene, quiet: Ended | None = None, *, jobs: int = 1) -> list[str]:
    """What is wrong, a sentence each. quiet: what the same job came to in a run where nothing died.

    jobs: how many of them this home has run.
    """
    record = scene.job()
    if record is None:
        return ["there is no job"]
    try:
        ended = read(scene)
    except (OSError, ValueError, pa.ArrowException) as error:
        return [f"the results cannot be read: {error!r}"]
    found = [
        *_rows(scene, ended),
        *_manifest(scene.folder_of_job(), ended),
        *_files(scene.folder_of_job(), ended),
        *_database(scene, record["id"]),
        *_ledger(scene, ended),
        *(f"a process is left: {line}" for line in leftovers(scene.home)),
    ]
    return found + ([] if quiet is None else _differences(ended, quiet, jobs))


def _rows(scene: Scene, ended: Ended) -> list[str]:
    rows = ended.table["row"].to_pylist()
    found = []
    if rows != list(range(len(rows))) or not rows:
        counts = Counter(rows)
        twice = [row for row, count in counts.items() if count > 1]
        missing = sorted(set(range(max(rows, default=0) + 1)) - set(rows))
        found.append(f"{len(rows)} rows; twice: {twice[:10]}; missing: {missing[:10]}")
    if scene.variant.lines:
        return found
    source = pq.read_table(scene.input)
    taken = source.take(ended.table["input_row"])
    kept = [name for name in source.column_names if name in ended.table.column_names]
    found += [f"column {name} is not the input's" for name in kept if not ended.table[name].equals(taken[name])]
    if "--id" in scene.variant.options and not _ids_begin(ended.table["custom_id"], taken["id"]):
        found.append("custom_id is not the input's id")
    return found


def _ids_begin(ids: pa.ChunkedArray, expected: pa.ChunkedArray) -> bool:
    return all(a.startswith(b) for a, b in zip(ids.to_pylist(), expected.to_pylist(), strict=True))


def _manifest(folder: Path, ended: Ended) -> list[str]:
    manifest, table = ended.manifest, ended.table
    outcomes = dict(Counter(table["outcome"].to_pylist()))
    facts = {
        "rows": table.num_rows,
        "outcomes": outcomes,
        "input_tokens": sum(table["input_tokens"].to_pylist()),
        "cached_tokens": sum(table["cached_tokens"].to_pylist()),
        "output_tokens": sum(table["output_tokens"].to_pylist()),
        "amount_pico": sum(table["amount_pico"].to_pylist()),
        "state": ended.state,
        "part_count": len(list(folder.glob("part-*.parquet"))),
    }
    found = [
        f"manifest {key} is {manifest[key]}, not {value}" for key, value in facts.items() if manifest[key] != value
    ]
    usage = ended.usage
    record = {
        "rows": usage["rows"],
        "outcomes": usage["outcomes"],
        "input_tokens": usage["input"] + usage["cached"],
        "cached_tokens": usage["cached"],
        "output_tokens": usage["output"],
        "amount_pico": ended.amount_pico,
    }
    return found + [
        f"the record's {key} is {value}, not {facts[key]}" for key, value in record.items() if facts[key] != value
    ]


def _files(folder: Path, ended: Ended) -> list[str]:
    """Exactly the published parts, the manifest and `_SUCCESS`; each part as the manifest describes it."""
    expected = {part["name"] for part in ended.manifest["parts"]} | {"_manifest.json", "_SUCCESS"}
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    present = {name for name in present if not HALF.fullmatch(name)}
    found = [f"{name} is missing" for name in sorted(expected - present)]
    found += [f"{name} is left over" for name in sorted(present - expected)]
    for part in ended.manifest["parts"]:
        path = folder / part["name"]
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != part["checksum"]:
            found.append(f"{part['name']} has another checksum than the manifest says")
    return found


def _database(scene: Scene, job: str) -> list[str]:
    found = []
    record = scene.query("SELECT state, sealed_at, planned FROM jobs WHERE id = ?", job)[0]
    if record["sealed_at"] is None:
        found.append("the job is not sealed")
    for table, where in {
        "reservations": "state = 'open'",
        "tasks": "state NOT IN ('done', 'split', 'void')",
        "outbox": "1",
        "inbox": "1",
    }.items():
        (count,) = scene.query(f"SELECT count(*) AS n FROM {table} WHERE {where}")[0].values()
        if count:
            found.append(f"{count} rows of {table} are left where {where}")
    staged = scene.home / "objects" / "tenants"
    found += [f"staged {path.name} is left" for path in staged.glob(f"*/jobs/{job}/staged/*")]
    return found


def _ledger(scene: Scene, ended: Ended) -> list[str]:
    store = open_store(scene.home)
    try:
        found = list(store.verify().faults)
        entries = [entry for entry in store.entries() if entry.kind == "usage"]
    finally:
        store.close()
    charged = Counter(entry.txn for entry in entries if entry.line == 0)
    found += [f"{txn} is charged {count} times" for txn, count in charged.items() if count > 1]
    owed = sum(pico for _, pico in ended.spent.values())
    if owed != ended.amount_pico:
        found.append(f"the tenant owes {owed} pico-units, the job's record says {ended.amount_pico}")
    if sum(ended.balances.get(account, 0) for account in PLATFORM):
        found.append("waste and capacity do not cancel out")
    return found


def differences(ended: Any, quiet: Any) -> list[str]:
    """What the rows, the usage and the money of two ended jobs do not share."""
    found = []
    if not ended.table.equals(quiet.table):
        names = [n for n in quiet.table.column_names if n not in ended.table.column_names]
        names += [n for n in ended.table.column_names if not ended.table[n].equals(quiet.table[n])]
        found.append(f"columns differ from the quiet run: {names}")
    for name in ("state", "usage", "amount_pico", "spent"):
        has, should = getattr(ended, name), getattr(quiet, name)
        if has != should:
            found.append(f"{name} is {has}, in the quiet run {should}")
    return found


def _differences(ended: Ended, quiet: Ended, jobs: int) -> list[str]:
    found = differences(ended, quiet)
    for account in (ended.balances.keys() | quiet.balances.keys()) - PLATFORM:
        has, should = ended.balances.get(account, 0), jobs * quiet.balances.get(account, 0)
        if has != should:
            found.append(f"the balance of {account} is {has}, should be {should}")
    return found
