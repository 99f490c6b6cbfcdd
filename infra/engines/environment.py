"""The environment of the engine's process: quiet, offline, and fast on a CPU unless the user said otherwise."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from infra.cores import allowed_cpus
from infra.engines.spec import EngineSpec

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",  # a model is a folder; whoever wants one fetched at start sets this to 0
    "TOKENIZERS_PARALLELISM": "true",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
SMALL_MACHINE_CPUS = 8
"""Up to here every CPU computes: vLLM's own choice keeps one back for its scheduler, half of a 2-core machine. Beyond,
its choice by NUMA node and physical core is the better one."""
PRELOADS = (("libtcmalloc_minimal.so*", "libtcmalloc.so*"), ("libiomp5.so",))
"""One of each pattern group is preloaded on a CPU; together measured at 1.2 to 1.6 times the tokens per second."""


def child_environment(spec: EngineSpec, ours: Mapping[str, str]) -> dict[str, str]:
    """Defaults, overridden by our own environment, overridden by the spec's."""
    env = {**QUIET, **with_package(ours)}
    if spec.backend == "vllm" and is_cpu_build():
        env = {**cpu_defaults(spec, allowed_cpus()), **env}
        env.setdefault("LD_PRELOAD", ":".join(find_preloads(library_folders())))
    if spec.ray is not None:
        env["RAY_ADDRESS"] = spec.ray.address  # vLLM's processes join the cluster by it, each for itself
        if not env.get("CUDA_VISIBLE_DEVICES"):  # Ray hides them from a worker whose executor's workers have them
            env.pop("CUDA_VISIBLE_DEVICES", None)
    env.update(spec.env)
    return env


def with_package(ours: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a child finds our packages, also where they are not installed."""
    if PACKAGE_ROOT.name in {"site-packages", "dist-packages"}:
        return dict(ours)
    return {**ours, "PYTHONPATH": os.pathsep.join(filter(None, (ours.get("PYTHONPATH"), str(PACKAGE_ROOT))))}


def cpu_defaults(spec: EngineSpec, cpus: Sequence[int]) -> dict[str, str]:
    """vLLM's settings where it computes on the CPUs numbered `cpus`."""
    defaults = {"VLLM_CPU_KVCACHE_SPACE": str(spec.cpu_kv_cache_gib)}
    one_worker = not any("parallel_size" in name for name in spec.engine_args)
    if one_worker and len(cpus) <= SMALL_MACHINE_CPUS:
        defaults["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cpus))
    return defaults


def find_preloads(folders: Iterable[Path]) -> list[str]:
    """The libraries of `PRELOADS` that are there. A path that LD_PRELOAD cannot express is left out."""
    folders = list(folders)
    found = []
    for patterns in PRELOADS:
        hits = [str(hit) for pattern in patterns for folder in folders for hit in sorted(folder.glob(pattern))]
        usable = [hit for hit in hits if ":" not in hit and " " not in hit]
        found += usable[:1]
    return found


def library_folders() -> list[Path]:
    """Where a virtual environment (intel-openmp) and the system keep shared libraries. None off Linux."""
    if sys.platform != "linux":
        return []
    vllm = [Path(packages) / "vllm" / "libs" for packages in site.getsitepackages()]
    usual = ("/usr/local/lib", f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64", "/usr/lib")
    return [Path(sys.prefix) / "lib", *vllm, *map(Path, usual)]


def is_cpu_build() -> bool:
    """Whether the installed vLLM is one for CPUs; asked of the package data, because importing it takes seconds."""
    return bool(_version("vllm-cpu")) or "+cpu" in _version("vllm")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
