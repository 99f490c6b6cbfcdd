"""An engine over several nodes: vLLM's Ray executor in the placement group that the fleet reserved for the worker.

vLLM takes the group of the Ray actor that it runs in. The engine's process is none: it is a child of one, so that its
crash stays its own. So it looks the group up by its name and says it to vLLM; what it starts then, joins Ray by itself
(`RAY_ADDRESS`), and Ray ends it when this process is gone.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.util.placement_group import get_placement_group

from infra.engines.spec import RayPlace


def join(parallel: Any, place: RayPlace) -> None:
    """parallel: vLLM's `ParallelConfig`, whose executor is Ray's. Raises ValueError where the group is not there."""
    ray.init(address=place.address, namespace=place.namespace, log_to_driver=False, logging_level="warning")
    parallel.placement_group = get_placement_group(place.group)
