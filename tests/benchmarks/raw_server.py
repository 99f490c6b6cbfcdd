"""vLLM's own OpenAI server as a process: what an interactive request costs without Nightmill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.engines.environment import child_environment
from infra.engines.spec import EngineSpec

START_S, END_S = 300.0, 30.0
_FLAGS = ("--disable-log-stats", "--disable-uvicorn-access-log", "--enforce-eager")


@contextmanager
def raw_server(folder: Path, spec: EngineSpec, arguments: Mapping[str, Any], port: int) -> Iterator[None]:
    """It answers, in the environment of our engine's process and with its arguments. Raises RuntimeError."""
    words = [word for name, value in arguments.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [
        sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server", "--model", spec.path,
        "--served-model-name", spec.model, "--host", "127.0.0.1", "--port", str(port), *_FLAGS, *words,
    ]  # fmt: skip
    log = folder / f"raw-{spec.model}.log"
    with log.open("wb") as out:
        env = child_environment(spec, os.environ)
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
        try:
            _wait(process, port, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
        except OSError as error:
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"vLLM's server did not start:\n{log.read_text()[-4000:]}") from error
            time.sleep(0.3)
        else:
            return
