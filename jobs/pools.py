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

PRIVATE = "run-"
"""An embedded run makes a pool for its job alone; its name begins so, and no declared pool's does."""
_UNFIT = re.compile(r"[^a-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Value):
    """A declared pool.

    model: a name of the registry. engine_args: passed to the engine. accelerators: of one worker (tensor × pipeline
    parallel size), 0 for a pool on CPUs. num_cpus: CPU cores that a worker sets aside.
    engines: processes of a worker, behind one port; they share its accelerators or cores.
    dispatchers: processes that lease for its workers; beyond the partitions of its topics they are idle.
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
    price_per_accelerator_hour_micro: int | None = None

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
    """The pool that one process makes for a model where none is declared: one worker while there is work."""
    name = _UNFIT.sub("-", model.name.lower()).strip("-_") or "model"
    purpose = EMBEDDING if model.kind == "embedding" else BATCH
    return Pool(name=name.removeprefix(PRIVATE)[:63], model=model.name, purpose=purpose)


def resolve_pool(model: str, pools: Sequence[Pool]) -> Pool:
    """The pool that serves a job's model: the first declared one that is not interactive. Raises NotFound."""
    serving = [pool for pool in pools if pool.model == model and pool.purpose != INTERACTIVE]
    if not serving:
        raise NotFound(kind="pool for batch jobs of model", name=model, hint=_served(pools))
    return serving[0]


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
