"""Pools: workers with one purpose, one model and one engine configuration; and which of them serves a job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.errors import NotFound
from jobs.model import Model, Value

INTERACTIVE, BATCH, EMBEDDING = "interactive", "batch", "embedding"
"""Purposes with a meaning of their own; any other word (`long-context`) is a label."""

KEPT_FREE = 0.25
"""vLLM never preempts for an urgent row that waits, so seats are kept: beside a full batch the p99 of interactive rows
falls from 1.15 to 0.47 s, and the batch loses a seventh."""
PRIVATE = "run-"
"""An embedded run makes a pool for its job alone; its name begins so, and no declared pool's does."""
_UNFIT = re.compile(r"[^a-z0-9_-]+")
_ASKED = {INTERACTIVE: 0, EMBEDDING: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Value):
    """A declared pool.

    model: a name of the registry. engine_args: passed to the engine. accelerators: of one worker (tensor × pipeline
    parallel size), 0 for a pool on CPUs. num_cpus: CPU cores that a worker sets aside.
    engines: processes of a worker, behind one port; they share its accelerators or cores.
    dispatchers: processes that lease for its workers; beyond the partitions of its topics they are idle.
    requests: whether it takes interactive requests; None: as its purpose has it. lends: its workers, being interactive,
    also get tasks of their model while no request needs their seats. kept_free: share of a worker's seats that no task
    takes where requests come too.
    price_per_accelerator_hour_micro: micro-units of the book's currency; for CPU pools, of a worker's hour.
    """

    name: str
    model: str
    purpose: str = BATCH
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    min_workers: int = 0
    max_workers: int = 1
    accelerators: int = 0
    num_cpus: float = 1.0
    engines: int = 1
    dispatchers: int = 1
    requests: bool | None = None
    lends: bool = False
    kept_free: float = KEPT_FREE
    price_per_accelerator_hour_micro: int | None = None

    @property
    def takes_requests(self) -> bool:
        """Whether interactive requests go to its workers."""
        return self.purpose in {INTERACTIVE, EMBEDDING} if self.requests is None else self.requests

    @property
    def runs_tasks(self) -> bool:
        """Whether tasks of jobs go to its workers."""
        return self.purpose != INTERACTIVE or self.lends

    @property
    def stages(self) -> int:
        """Pipeline stages: each stays on one node, different ones may lie on different nodes."""
        return int(self.engine_args.get("pipeline_parallel_size", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(Value):
    """What one worker asks of the cluster: bundles of resources, and whether they must share a node."""

    bundles: tuple[Mapping[str, float], ...]
    one_node: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(Value):
    """What a node has to give."""

    gpus: float
    cpus: float


def placement(pool: Pool) -> Placement:
    """One bundle with all accelerators, since a bundle never spans nodes. With pipeline stages each accelerator has its
    own, stage by stage: vLLM's Ray executor refuses bundles of more.

    The worker itself lives in the first bundle, with its CPU cores.
    """
    if pool.stages == 1 or not pool.accelerators:
        gpus = {"GPU": float(pool.accelerators)} if pool.accelerators else {}
        return Placement(bundles=({**gpus, "CPU": pool.num_cpus},), one_node=True)
    rest = ({"GPU": 1.0},) * (pool.accelerators - 1)
    return Placement(bundles=({"GPU": 1.0, "CPU": pool.num_cpus}, *rest), one_node=False)


def seat_stages(pool: Pool, free: Mapping[str, Free]) -> tuple[str, ...] | None:
    """A node for each pipeline stage, so that its tensor-parallel ranks share it and the stages lie on few nodes; None
    where they do not fit now. The first one's node has the worker's CPU cores too.
    """
    each = pool.accelerators // pool.stages
    most = {name: int(node.gpus // each) for name, node in free.items()}
    firsts = [name for name, node in free.items() if node.cpus >= pool.num_cpus and most[name]]
    if not firsts or sum(most.values()) < pool.stages:
        return None
    first = max(firsts, key=lambda name: (most[name], name))
    others = sorted((name for name in most if name != first), key=lambda name: (-most[name], name))
    seats = [name for name in (first, *others) for _ in range(most[name])]
    return tuple(seats[: pool.stages])


def pool_for(model: Model) -> Pool:
    """The pool that one process makes for a model where none is declared: one worker while there is work, for requests
    and for jobs.
    """
    name = _UNFIT.sub("-", model.name.lower()).strip("-_") or "model"
    purpose = EMBEDDING if model.kind == "embedding" else BATCH
    return Pool(name=name.removeprefix(PRIVATE)[:63], model=model.name, purpose=purpose, requests=True)


def resolve_pool(model: str, pools: Sequence[Pool]) -> Pool:
    """The pool that serves a job's model: the first declared one that is not interactive, or else the first that lends.

    Raises NotFound.
    """
    serving = [pool for pool in pools if pool.model == model and pool.runs_tasks]
    if not serving:
        raise NotFound(kind="pool for batch jobs of model", name=model, hint=_served(pools))
    return min(serving, key=lambda pool: pool.purpose == INTERACTIVE)


def request_pools(model: str, pools: Sequence[Pool]) -> list[Pool]:
    """The pools that take requests for a model, in the order in which they are asked: interactive ones, embedding ones,
    those that have tasks beside; each as declared.
    """
    serving = [pool for pool in pools if pool.model == model and pool.takes_requests]
    return sorted(serving, key=lambda pool: _ASKED.get(pool.purpose, len(_ASKED)))


def resolve_for_requests(model: str, pools: Sequence[Pool]) -> Pool:
    """The first of `request_pools`. Raises NotFound."""
    serving = request_pools(model, pools)
    if not serving:
        raise NotFound(kind="pool for interactive requests of model", name=model, hint=_served(pools))
    return serving[0]


def lenders(pool: Pool, pools: Sequence[Pool]) -> list[Pool]:
    """The interactive pools whose workers get tasks of this one too, while no request needs their seats."""
    return [one for one in pools if one.lends and one.model == pool.model and one.name != pool.name]


def hands_of(pool: Pool, pools: Sequence[Pool]) -> list[str]:
    """The pools whose workers get its tasks: itself, and those that lend."""
    return [pool.name, *(one.name for one in lenders(pool, pools))]


def pool_named(name: str, pools: Sequence[Pool]) -> Pool:
    """Raises NotFound, naming those there are."""
    for pool in pools:
        if pool.name == name:
            return pool
    raise NotFound(kind="pool", name=name, hint=_served(pools))


def is_private(pool: str) -> bool:
    """Whether a pool was made for one embedded run: no cluster looks after it."""
    return pool.startswith(PRIVATE)


def _served(pools: Sequence[Pool]) -> str:
    if not pools:
        return "No pool is declared: the settings file needs a [pools.NAME] table."
    return f"Served are: {', '.join(f'{pool.model} (pool {pool.name}, {pool.purpose})' for pool in pools)}."
