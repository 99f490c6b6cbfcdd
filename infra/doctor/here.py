"""Of the machine: the interpreter, the engine and what it runs on, the data directory, its disk and its clock."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from infra import machine
from infra.doctor.check import Check, Level
from infra.engines import environment
from infra.settings import Settings

OLDEST_PYTHON = (3, 11)
MIB = 1 << 20


def python(_: Settings) -> Iterator[Check]:
    """Whether its version fits."""
    found = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info[:2] >= OLDEST_PYTHON
    mend = "" if fits else "make setup, which brings a fitting one"
    yield Check(name="python", level=Level.OK if fits else Level.FAIL, found=found, mend=mend)


def engine(_: Settings) -> Iterator[Check]:
    """vLLM, and on a CPU what its process will preload."""
    vllm = machine.vllm_build()
    if vllm is None:
        mend = "make setup (CPU), or pip install nightmill[gpu]"
        yield Check(name="engine", level=Level.WARN, found="no vLLM: only the model `fake` can run", mend=mend)
        return
    missing = [name for name in ("torch", "transformers") if not machine.can_import(name)]
    if missing:
        found = f"{vllm} is installed without {', '.join(missing)}"
        yield Check(name="engine", level=Level.FAIL, found=found, mend="make setup")
        return
    yield Check(name="engine", level=Level.OK, found=vllm)
    if environment.is_cpu_build():
        yield _preloads()


def _preloads() -> Check:
    """What the engine's process will preload, found as it will find it."""
    found = environment.find_preloads(environment.library_folders())
    lacking = [name for name in ("tcmalloc", "iomp5") if not any(name in path for path in found)]
    if not lacking:
        return Check(name="preloads", level=Level.OK, found=", ".join(found))
    packages = {"tcmalloc": "apt install libtcmalloc-minimal4", "iomp5": "pip install intel-openmp"}
    mend = " and ".join(packages[name] for name in lacking)
    words = f"no {' and no '.join(lacking)}" + (f" (but {', '.join(found)})" if found else "")
    mend = f"{mend}: a CPU engine is 1.2 to 1.6 times as fast with both"
    return Check(name="preloads", level=Level.WARN, found=words, mend=mend)


def cpu(_: Settings) -> Iterator[Check]:
    """How many, and whether a CPU engine can run on them."""
    count, words = machine.cpus(), machine.cpu_instructions()
    found = f"{count} for this process" + (f", {'/'.join(words)}" if words else "")
    if machine.is_x86() and "avx2" not in words:
        mend = "a CPU engine needs AVX2; use a GPU or another machine"
        yield Check(name="cpu", level=Level.WARN, found=f"{found}, no AVX2", mend=mend)
        return
    yield Check(name="cpu", level=Level.OK, found=found)


def memory(settings: Settings) -> Iterator[Check]:
    """Whether a CPU engine finds room; unknown on some systems, then nothing is said."""
    free = machine.available_memory()
    if free is None:
        return
    found = f"{free / 1024**3:.1f} GiB can be had"
    wanted = settings.kv_cache_gib + 2
    if free < wanted * 1024**3:
        mend = f"a CPU engine takes {wanted} GiB and its weights: lower kv_cache_gib, or end something"
        yield Check(name="memory", level=Level.WARN, found=found, mend=mend)
        return
    yield Check(name="memory", level=Level.OK, found=found)


def home(settings: Settings) -> Iterator[Check]:
    """Whether the data directory can be written, linked and locked."""
    home = settings.home
    if not home.exists():
        parent = next(p for p in home.parents if p.exists())
        usable = os.access(parent, os.W_OK | os.X_OK)
        level, mend = (Level.OK, "") if usable else (Level.FAIL, f"make {parent} writable, or set NIGHTMILL_HOME")
        yield Check(name="home", level=level, found=f"{home} is not there yet", mend=mend)
        return
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=home) as scratch:
        yield from _file_system(home, Path(scratch))


def _file_system(home: Path, scratch: Path) -> Iterator[Check]:
    one, two = scratch / "one", scratch / "two"
    one.write_bytes(b"x")
    lacks = []
    try:
        two.hardlink_to(one)
    except OSError:
        lacks.append("hard links")
    with one.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lacks.append("file locks")
    if "file locks" in lacks:
        mend = "set NIGHTMILL_HOME to a folder on a local disk"
        yield Check(name="home", level=Level.FAIL, found=f"{home} has no {' and no '.join(lacks)}", mend=mend)
    elif lacks:
        mend = "a folder on a local disk is faster and safer"
        yield Check(name="home", level=Level.WARN, found=f"{home} has no hard links: results are copied", mend=mend)
    else:
        yield Check(name="home", level=Level.OK, found=f"{home} can be written, linked and locked")


def disk(settings: Settings) -> Iterator[Check]:
    """Whether there is more free space than a run asks for."""
    where = next(p for p in (settings.home, *settings.home.parents) if p.exists())
    free = shutil.disk_usage(where).free
    found = f"{free / 1e9:.1f} GB free"
    if free < settings.min_free_mib * MIB:
        mend = f"free some space on the disk of {settings.home} (min_free_mib is {settings.min_free_mib})"
        yield Check(name="disk", level=Level.WARN, found=found, mend=mend)
        return
    yield Check(name="disk", level=Level.OK, found=found)


def clock(settings: Settings) -> Iterator[Check]:
    """The machine's clock against the one that stamps files in the data directory."""
    now = time.time()
    found = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if not settings.home.exists():
        yield Check(name="clock", level=Level.OK, found=found)
        return
    with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=settings.home) as file:
        apart_s = abs(Path(file.name).stat().st_mtime - now)
    if apart_s > 2:
        found = f"{found}; the file system's is {apart_s:.0f} s apart"
        yield Check(name="clock", level=Level.WARN, found=found, mend="set both by NTP; leases are timed by them")
        return
    yield Check(name="clock", level=Level.OK, found=found)
