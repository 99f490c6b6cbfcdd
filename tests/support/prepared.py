"""The small models that tests of a real engine run on, prepared once and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from infra.models.prepare import is_complete

ROOT = Path(__file__).resolve().parents[2]


def prepared_model(name: str) -> Path:
    """The folder of `smollm2`, `minilm` or `tiny`. Skips the test where vLLM or the weights' package is missing, or
    fails it where services are required."""
    if find_spec("vllm") is None:
        missing("vLLM is not installed: make setup")
    cache = os.environ.get("NIGHTMILL_TEST_CACHE")
    folder = (Path(cache) if cache else ROOT / ".nightmill" / "models") / name
    if not is_complete(folder):  # in a process of its own: it imports torch
        command = [sys.executable, "-m", "infra.models.prepare", name, "--dest", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            missing(f"the model {name} cannot be prepared: {done.stderr.strip().splitlines()[-1]}")
    return folder


def missing(reason: str) -> None:
    if os.environ.get("REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
