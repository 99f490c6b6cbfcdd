"""Where workers live: named actors in named placement groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ray
import structlog
from ray._private.state import available_resources_per_node  # there is no public way to what a node has free
from ray.util import list_named_actors, placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import get_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from infra.settings import Settings
from infra.settings.wire import to_json
from infra.sql import codec
from jobs.pools import Free, Placement, Pool, placement, seat_stages
from workers.actors.common import (
    CALLS,
    ROLL_CALL_S,
    WORKER,
    Roster,
    actor_class,
    workers_of,
)
from workers.actors.worker import WorkerActor
from workers.reports import Report

log = structlog.get_logger()

_NODE_LABEL = "ray.io/node-id"
"""Ray gives it to each node."""


class RayGround:
    """`workers.fleet.Ground`: a worker is a named actor in a named placement group."""

    def __init__(self, settings: Settings) -> None:
        self._settings = to_json(settings)
        self._roster = Roster()

    def workers(self, pool: str) -> list[str]:
        return workers_of(pool)

    def reports(self, names: Sequence[str]) -> Mapping[str, Report]:
        return self._roster.reports(names, timeout_s=ROLL_CALL_S)

    def start(self, pool: Pool, name: str, avoid: frozenset[str] = frozenset()) -> None:
        """Both wait for room in the cluster; the actor is there, by its name, from now on."""
        wanted = placement(pool)
        place = placement_group(
            [dict(bundle) for bundle in wanted.bundles],
            strategy="STRICT_PACK" if wanted.one_node else "PACK",
            name=WORKER + name,
            lifetime="detached",
            bundle_label_selector=_nodes_of_stages(pool, avoid) or _nodes_to_avoid(wanted, avoid),
        )
        actor_class(WorkerActor).options(
            name=WORKER + name,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=CALLS,
            num_cpus=pool.num_cpus,
            num_gpus=wanted.bundles[0].get("GPU", 0) if wanted.one_node else 0,  # else its engine's workers have them
            scheduling_strategy=PlacementGroupSchedulingStrategy(place, placement_group_bundle_index=0),
        ).remote(self._settings, codec.encode(pool).encode(), name)

    def drain(self, name: str) -> None:
        handle = self._roster.handle(name)
        if handle is not None:
            handle.drain.remote("drain")

    def remove(self, name: str) -> None:
        handle = self._roster.handle(name)
        if handle is not None:
            ray.kill(handle, no_restart=True)
        try:
            remove_placement_group(get_placement_group(WORKER + name))
        except ValueError:  # it is gone
            return

    def sweep(self) -> None:
        """Give back the places of workers that died while nobody supervised."""
        there = set(list_named_actors())
        for place in placement_group_table().values():
            name = str(place["name"])
            if name.startswith(WORKER) and name not in there and place["state"] != "REMOVED":
                self.remove(name.removeprefix(WORKER))


def _nodes_of_stages(pool: Pool, avoid: frozenset[str]) -> list[dict[str, str]] | None:
    """For each bundle the node that it must lie on; None where there are no stages, or they do not fit now.

    Then Ray packs the bundles as it can once there is room: correct, but ranks of a stage may lie apart, and are slow.
    """
    if placement(pool).one_node:
        return None
    seats = seat_stages(pool, {name: free for name, free in _free_nodes().items() if name not in avoid})
    if seats is None:
        log.warning("stages_not_seated", pool=pool.name)
        return None
    each = pool.accelerators // pool.stages
    return [{_NODE_LABEL: node} for node in seats for _ in range(each)]


def _nodes_to_avoid(wanted: Placement, avoid: frozenset[str]) -> list[dict[str, str]] | None:
    return [{_NODE_LABEL: f"!in({','.join(sorted(avoid))})"}] * len(wanted.bundles) if avoid else None


def _free_nodes() -> dict[str, Free]:
    found = available_resources_per_node()
    return {name: Free(gpus=has.get("GPU", 0.0), cpus=has.get("CPU", 0.0)) for name, has in found.items()}
