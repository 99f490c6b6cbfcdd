"""A Ray cluster of three nodes on this machine: one is killed in the middle of a job."""

from importlib.util import find_spec

import pytest

from tests.support.prepared import missing

if find_spec("ray") is not None:
    import ray
    from ray.cluster_utils import Cluster as Nodes

    from tests.support.town import Town, assert_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(480)]

NODE = {"object_store_memory": 80 << 20, "include_dashboard": False}
IMPATIENT = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 10}


@pytest.fixture
def nodes():
    """A head without room for workers, and two nodes with room for two each."""
    if find_spec("ray") is None:
        missing("Ray is not installed: pip install -e '.[cluster]'")
    opened = Nodes(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "_system_config": IMPATIENT})
    for _ in range(2):
        opened.add_node(num_cpus=2, object_store_memory=80 << 20)
    ray.init(address=opened.address, namespace="nightmill-cluster", log_to_driver=False, logging_level="error")
    yield opened
    ray.shutdown()
    opened.shutdown()


def test_a_node_is_killed_in_the_middle_of_a_job_and_its_workers_are_made_again_elsewhere(nodes, tmp_path):
    town = Town(tmp_path)
    town.cluster.up()
    job = town.submit()
    town.until_rows(job, 200)
    lost = town.workers()[0]
    node = next(node for node in nodes.worker_nodes if node.node_id == lost["node"])
    nodes.remove_node(node, allow_graceful=False)
    assert_whole(town, job)
    after = town.submit("--limit", "300")
    town.completed(after)
    assert lost["node"] not in {worker["node"] for worker in town.workers(None)}
    town.cluster.down(10)
    town.home.close()
