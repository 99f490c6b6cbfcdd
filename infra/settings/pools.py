"""`[pools.NAME]` tables of the settings file: read strictly, every fault told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from infra.hints import nearest
from jobs.model import Value
from jobs.pools import BATCH, EMBEDDING, INTERACTIVE, KEPT_FREE, PRIVATE, Pool

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TAKEN = {"submit", "dead"}
"""Second parts of topics that are no pool's."""
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKey(Value):
    """A key of the table. types: what TOML may give; shown: the type in words; low, high: least and largest number."""

    name: str
    types: tuple[type, ...]
    shown: str
    help: str
    default: str = ""
    low: float | None = None
    high: float | None = None


POOL_KEYS = (
    PoolKey(name="model", types=(str,), shown="text", help="Model of the registry that its workers serve. Required."),
    PoolKey(
        name="purpose",
        types=(str,),
        shown="text",
        default=BATCH,
        help=f"`{BATCH}`, `{EMBEDDING}`, `{INTERACTIVE}` (takes no batch jobs), or a word of your own.",
    ),
    PoolKey(
        name="requests",
        types=(bool,),
        shown="boolean",
        default=f"true for `{INTERACTIVE}` and `{EMBEDDING}`",
        help="Whether it takes interactive requests (`/v1/chat/completions` and the like).",
    ),
    PoolKey(
        name="lends",
        types=(bool,),
        shown="boolean",
        default="false",
        help=f"Of a pool that is `{INTERACTIVE}`: batch jobs of its model use its workers while no request needs them.",
    ),
    PoolKey(
        name="kept_free",
        types=(int, float),
        shown="number",
        default=f"{KEPT_FREE:g}",
        low=0,
        high=1,
        help="Share of a worker's seats that batch jobs never take, where requests come too.",
    ),
    PoolKey(
        name="engine_args",
        types=(dict,),
        shown="table",
        default="none",
        help="Passed to the engine: `max_num_seqs`, `tensor_parallel_size`, `quantization` and so on.",
    ),
    PoolKey(name="min_workers", types=(int,), shown="integer", default="0", low=0, help="Kept while there is no work."),
    PoolKey(name="max_workers", types=(int,), shown="integer", default="1", low=1, help="Workers at most."),
    PoolKey(
        name="accelerators",
        types=(int,),
        shown="integer",
        default="tensor × pipeline parallel size where that is more than 1, else 0",
        low=0,
        help="GPUs of one worker; 0 runs it on CPUs.",
    ),
    PoolKey(
        name="num_cpus", types=(int, float), shown="number", default="1", low=0.01, help="CPU cores of one worker."
    ),
    PoolKey(
        name="engines",
        types=(int,),
        shown="integer",
        default="1",
        low=1,
        help="Engine processes of one worker, which share its accelerators or cores; each has `engine_args`. Several "
        "do more short embeddings than one, whose front end is the narrow place.",
    ),
    PoolKey(
        name="dispatchers",
        types=(int,),
        shown="integer",
        default="1",
        low=1,
        help="Processes that lease tasks for its workers; more than `kafka_partitions` are of no use.",
    ),
    PoolKey(
        name="price_per_accelerator_hour",
        types=(int, float),
        shown="number",
        default="none",
        low=0,
        help="What an accelerator's hour costs you, in the book's currency (of a pool on CPUs, a worker's hour).",
    ),
)
_BY_NAME = {key.name: key for key in POOL_KEYS}


def read_pools(tables: Any, faults: list[str]) -> tuple[Pool, ...]:
    """The pools of the file's `pools` table, in its order; those with faults are left out and told of."""
    if not isinstance(tables, Mapping):
        faults.append("pools: it is no table; write [pools.NAME]")
        return ()
    pools = []
    for name, table in tables.items():
        found = list(_faults(name, table))
        faults.extend(f"pools.{name}{fault}" for fault in found)
        if not found:
            pools.append(_pool(name, table))
    return tuple(pools)


def _faults(name: str, table: Any) -> Iterator[str]:
    if not _NAME.fullmatch(name) or name in _TAKEN or name.startswith(PRIVATE):
        yield f": it cannot be a pool's name (a-z, 0-9, '_' and '-', at most 63; not submit, dead or {PRIVATE}…)"
    if not isinstance(table, Mapping):
        yield ": it is no table"
        return
    if "model" not in table:
        yield ".model: it is missing"
    bad = False
    for key, value in table.items():
        for fault in _key_faults(key, value):
            bad = True
            yield f".{key}: {fault}"
    if not bad:
        yield from _faults_between(table)


def _key_faults(name: str, value: Any) -> Iterator[str]:
    key = _BY_NAME.get(name)
    if key is None:
        near = nearest(name, _BY_NAME)
        yield "it is not known" + (f"; did you mean {near}?" if near else "")
    elif isinstance(value, bool) is not (bool in key.types) or not isinstance(value, key.types):
        yield f"{value!r} is not {'an' if key.shown[0] in 'aeiou' else 'a'} {key.shown}"
    elif key.low is not None and isinstance(value, (int, float)) and not key.low <= value < float("inf"):
        yield f"{value:.10g} is not {key.low:.10g} or more"
    elif key.high is not None and isinstance(value, (int, float)) and value > key.high:
        yield f"{value:.10g} is more than {key.high:.10g}"
    elif isinstance(value, str) and not value.strip():
        yield "it is empty"


def _faults_between(table: Mapping[str, Any]) -> Iterator[str]:
    least, most = table.get("min_workers", 0), table.get("max_workers", max(1, table.get("min_workers", 0)))
    if least > most:
        yield f".min_workers: {least} is more than max_workers, {most}"
    yield from _faults_of_purpose(table)
    parallel = _parallel(table)
    if not parallel:
        yield ".engine_args: tensor_parallel_size and pipeline_parallel_size are whole numbers from 1"
    elif table.get("accelerators") and table["accelerators"] != parallel:
        yield f".accelerators: {table['accelerators']} is not tensor × pipeline parallel size, {parallel}"


def _faults_of_purpose(table: Mapping[str, Any]) -> Iterator[str]:
    interactive = table.get("purpose", BATCH) == INTERACTIVE
    if table.get("lends") and not interactive:
        yield f".lends: only a pool with purpose {INTERACTIVE} lends; this one has batch jobs of its own"
    if interactive and table.get("requests") is False:
        yield f".requests: a pool with purpose {INTERACTIVE} takes nothing else"


def _parallel(table: Mapping[str, Any]) -> int:
    """Accelerators that the engine's arguments ask for, 0 where they are no numbers."""
    args = table.get("engine_args", {})
    product = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        size = args.get(name, 1)
        if type(size) is not int or size < 1:
            return 0
        product *= size
    return product


def _pool(name: str, table: Mapping[str, Any]) -> Pool:
    parallel = _parallel(table)
    least = table.get("min_workers", 0)
    price = table.get("price_per_accelerator_hour")
    return Pool(
        name=name,
        model=table["model"],
        purpose=table.get("purpose", BATCH),
        engine_args=table.get("engine_args", {}),
        min_workers=least,
        max_workers=table.get("max_workers", max(1, least)),
        accelerators=table.get("accelerators", parallel if parallel > 1 else 0),
        num_cpus=float(table.get("num_cpus", 1)),
        engines=table.get("engines", 1),
        dispatchers=table.get("dispatchers", 1),
        requests=table.get("requests"),
        lends=table.get("lends", False),
        kept_free=float(table.get("kept_free", KEPT_FREE)),
        price_per_accelerator_hour_micro=None if price is None else int(Decimal(str(price)) * _MICRO),
    )
