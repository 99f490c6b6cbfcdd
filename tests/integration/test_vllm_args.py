"""What vLLM is started with, as vLLM itself reads it."""

from importlib.util import find_spec

import pytest

from infra.engines.spec import RayPlace
from tests.support.engines import vllm_spec
from tests.support.prepared import missing

pytestmark = [pytest.mark.integration, pytest.mark.engine, pytest.mark.timeout(300)]


def test_an_engine_over_several_nodes_has_rays_executor_and_the_parallelism_of_its_pool(tmp_path):
    if find_spec("vllm") is None:
        missing("vLLM is not installed: make setup")
    from infra.engines.vllm_args import engine_args  # noqa: PLC0415 - it imports vLLM

    sizes = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    place = RayPlace(address="127.0.0.1:6379", namespace="n", group="g")
    alone = engine_args(vllm_spec(tmp_path, "tiny", engine_args=sizes))
    spread = engine_args(vllm_spec(tmp_path, "tiny", engine_args=sizes, ray=place))
    assert (alone.distributed_executor_backend, spread.distributed_executor_backend) == (None, "ray")
    assert (spread.tensor_parallel_size, spread.pipeline_parallel_size) == (2, 2)
