"""The environment that an engine's process gets."""

import pytest

from infra.engines import environment
from infra.engines.environment import child_environment, cpu_defaults, find_preloads
from infra.engines.spec import RayPlace
from tests.support.engines import a_spec

pytestmark = pytest.mark.unit


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(environment, "is_cpu_build", lambda: True)
    monkeypatch.setattr(environment, "allowed_cpus", lambda: [0, 3])
    monkeypatch.setattr(environment, "library_folders", list)


def test_nothing_is_fetched_or_reported_unless_the_user_says_so(tmp_path):
    env = child_environment(a_spec(tmp_path), {"HF_HUB_OFFLINE": "0"})
    assert (env["VLLM_NO_USAGE_STATS"], env["DO_NOT_TRACK"], env["HF_HUB_OFFLINE"]) == ("1", "1", "0")


@pytest.mark.usefixtures("on_cpu")
def test_on_a_small_machine_every_cpu_computes(tmp_path):
    env = child_environment(a_spec(tmp_path, "vllm", cpu_kv_cache_gib=3), {})
    assert (env["VLLM_CPU_OMP_THREADS_BIND"], env["VLLM_CPU_KVCACHE_SPACE"]) == ("0,3", "3")


@pytest.mark.usefixtures("on_cpu")
def test_the_user_wins_over_defaults_and_the_spec_over_the_user(tmp_path):
    ours = {"VLLM_CPU_OMP_THREADS_BIND": "auto", "LD_PRELOAD": "mine.so", "X": "user"}
    env = child_environment(a_spec(tmp_path, "vllm", env={"X": "spec"}), ours)
    assert (env["VLLM_CPU_OMP_THREADS_BIND"], env["LD_PRELOAD"], env["X"]) == ("auto", "mine.so", "spec")


def test_an_engine_over_several_nodes_joins_ray_and_sees_the_accelerators_of_its_node(tmp_path):
    place = RayPlace(address="10.0.0.1:6379", namespace="n", group="g")
    env = child_environment(a_spec(tmp_path, "vllm", ray=place), {"CUDA_VISIBLE_DEVICES": ""})
    assert (env["RAY_ADDRESS"], env.get("CUDA_VISIBLE_DEVICES")) == ("10.0.0.1:6379", None)


def test_many_cpus_or_several_workers_are_left_to_vllm(tmp_path):
    assert "VLLM_CPU_OMP_THREADS_BIND" not in cpu_defaults(a_spec(tmp_path), range(64))
    two = a_spec(tmp_path, engine_args={"tensor_parallel_size": 2})
    assert "VLLM_CPU_OMP_THREADS_BIND" not in cpu_defaults(two, [0, 1])


def test_one_library_of_each_kind_is_preloaded(tmp_path):
    for name in ("a/libiomp5.so", "b/libiomp5.so", "b/libtcmalloc.so.4", "c d/libtcmalloc_minimal.so.4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_preloads([tmp_path / "a", tmp_path / "b", tmp_path / "c d"])
    assert found == [str(tmp_path / "b/libtcmalloc.so.4"), str(tmp_path / "a/libiomp5.so")]
