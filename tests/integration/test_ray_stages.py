"""Pipeline stages on a Ray of three nodes with made-up GPUs: where the bundles lie and what the engine is told.

That vLLM computes over them cannot be tried without GPUs.
"""

from importlib.util import find_spec

import pytest

from infra.engines.spec import RayPlace
from jobs.pools import Pool
from tests.support.prepared import missing

if find_spec("ray") is not None:
    import ray
    from ray.cluster_utils import Cluster as Nodes
    from ray.util import placement_group_table
    from ray.util.placement_group import get_placement_group

    from infra.engines.vllm_ray import join
    from infra.settings import load
    from workers.actors.ground import RayGround
    from workers.actors.worker import _stages

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SMALL = {"object_store_memory": 80 << 20}
STAGES = Pool(
    name="big",
    model="fake",
    num_cpus=0.5,
    accelerators=4,
    engine_args={"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
)


@pytest.fixture
def nodes():
    """No node has room for both stages, and ranks that are packed as they come would lie apart: 3 and 1."""
    if find_spec("ray") is None:
        missing("Ray is not installed: pip install -e '.[cluster]'")
    opened = Nodes(initialize_head=True, head_node_args={**SMALL, "num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        opened.add_node(num_cpus=1, num_gpus=3, **SMALL)
    ray.init(address=opened.address, namespace="stages", log_to_driver=False, logging_level="error")
    yield opened
    ray.shutdown()
    opened.shutdown()


def test_ranks_of_a_stage_share_a_node_and_the_engine_finds_the_bundles(nodes, tmp_path):
    ground = RayGround(load(home=tmp_path, environ={}))
    ground.start(STAGES, "big-1")
    group = get_placement_group("worker.big-1")
    ray.get(group.ready(), timeout=60)
    where = placement_group_table(group)["bundles_to_node_id"]
    assert where[0] == where[1] != where[2] == where[3]

    class Parallel:
        placement_group = None

    parallel, place = Parallel(), _stages(STAGES, "big-1")
    assert place == RayPlace(address=nodes.address, namespace="stages", group="worker.big-1")
    ray.shutdown()
    join(parallel, place)
    assert (parallel.placement_group.id, parallel.placement_group.bundle_count) == (group.id, 4)
    assert [bundle.get("GPU") for bundle in parallel.placement_group.bundle_specs] == [1.0] * 4
    ground.remove("big-1")
