"""Pools: workers with one purpose, one model and one engine configuration; and which of them serves a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.errors import NotFound
from jobs.model import Value

INTERACTIVE, BATCH, EMBEDDING = "interactive", "batch", "embedding"
"""Purposes with a meaning of their own; any other word (`long-context`) is a label."""

PRIVATE = "run-"
"""An embedded run makes a pool for its job alone; its name begins so, and no declared pool's does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Value):
    """A declared pool.

    model: a name of the registry. engine_args: passed to the engine. accelerators: of one worker (tensor × pipeline
    parallel size), 0 for a pool on CPUs. num_cpus: CPU cores that a worker sets aside.
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


def placement(pool: Pool) -> Placement:
    """A bundle a pipeline stage, with the accelerators of its tensor-parallel ranks: a bundle never spans nodes.

    The worker itself lives in the first bundle, with its CPU cores.
    """
    each = pool.accelerators // pool.stages
    bundles: list[dict[str, float]] = [{"GPU": float(each)} if each else {} for _ in range(pool.stages)]
    bundles[0]["CPU"] = pool.num_cpus
    return Placement(bundles=tuple(bundles), one_node=pool.stages == 1)


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
