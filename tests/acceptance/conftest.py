"""The command line in processes of its own: each test has a data directory, and all share one set of inputs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.acceptance.goods import make_inputs
from tests.support.forkery import ForkedProcess, Forkery

COMMAND = str(Path(sys.executable).with_name("nightmill"))
"""The console script, for tests of what a shell sees; all others fork."""
FAKE_WARNING = "FAKE ENGINE: the outputs of this job are made up, not a model's. Use it for trying and testing only.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command line that has ended."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """One JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def job(self) -> str:
        """The last line of a run's stdout."""
        return self.out.splitlines()[-1]


def refused(sentence: str, *, code: int = 2) -> Done:
    """What a user sees of a request that cannot be taken: one sentence, and nothing else."""
    return Done(code=code, err=f"Error: {sentence}\n")


class Running:
    """A command line that goes on while the test does something else."""

    def __init__(self, process: ForkedProcess, out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def job(self) -> str:
        """Its job's id, as soon as it is printed."""
        wait_for(lambda: self.out.endswith("\n"), "the job's id on stdout", self)
        return self.out.splitlines()[-1]

    def says(self, text: str) -> None:
        """Wait until stderr has this text."""
        wait_for(lambda: text in self.err, f"{text!r} on stderr", self)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send(signal.SIGINT)

    def kill(self) -> None:
        self.process.send(signal.SIGKILL)

    def wait(self, timeout_s: float = 30.0) -> Done:
        code = self.process.wait(timeout_s)
        return Done(code=code, out=self.out, err=self.err)


def wait_for(
    seen: Callable[[], object],
    what: str,
    running: Running | None = None,
    *,
    every_s: float = 0.02,
    timeout_s: float = 30.0,
) -> None:
    """Look again and again."""
    end = time.monotonic() + timeout_s
    while not seen():
        if time.monotonic() > end:
            told = f": {running.out}\n{running.err}" if running is not None else ""
            msg = f"no {what} within {timeout_s} s{told}"
            raise AssertionError(msg)
        time.sleep(every_s)


class Nightmill:
    """Runs command lines in one data directory, from one working directory."""

    def __init__(self, forkery: Forkery, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.env = {**_environment(self.home), **(env or {})}
        self._forkery = forkery
        self._count = 0

    def __call__(self, *argv: object, code: int | None = 0, cwd: Path | None = None) -> Done:
        """Run a command line to its end. code: what it must exit with, None for anything."""
        with self.started(*argv, cwd=cwd) as running:
            done = running.wait()
        assert code is None or done.code == code, f"{argv} gave {done.code}, not {code}\n{done.out}\n{done.err}"
        return done

    @contextmanager
    def started(self, *argv: object, cwd: Path | None = None) -> Iterator[Running]:
        """Start a command line; it is killed if it still runs at the end."""
        self._count += 1
        out, err = self.folder / f"{self._count}.out", self.folder / f"{self._count}.err"
        with out.open("xb") as out_file, err.open("xb") as err_file:
            process = self._forkery.start(
                [str(arg) for arg in argv], cwd=cwd or self.folder, env=self.env, out=out_file, err=err_file
            )
        try:
            yield Running(process, out, err)
        finally:
            process.close()

    def run(self, source: object, *options: object, code: int | None = 0, **keywords: Any) -> Done:
        """`nightmill run` on the fake engine, quietly unless the options say otherwise."""
        return self("run", source, "--model", "fake", *options, code=code, **keywords)

    def jobs(self) -> list[str]:
        """Ids, the newest first."""
        return [job["job"] for job in self("jobs", "--json").json]

    def status(self, job: str = "last") -> dict[str, Any]:
        return dict(self("status", job, "--json").json)

    def until_committed(self, running: Running) -> str:
        """Wait until some rows of a job that runs are committed; its id."""
        job = running.job()
        wait_for(lambda: self.status(job)["rows"], "committed rows", running, every_s=0.15)
        return job

    def results(self, job: str) -> pa.Table:
        """The rows of a finished job by row number, as a reader of its folder sees them."""
        return pq.read_table(self.status(job)["output"]).sort_by("row")


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "NIGHTMILL_HOME": str(home), "LANG": "C.UTF-8", "COLUMNS": "120"}


@pytest.fixture(scope="session")
def forkery() -> Iterator[Forkery]:
    opened = Forkery()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def fresh(forkery: Forkery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was opened once: to make its databases takes longer than many a test."""
    nightmill = Nightmill(forkery, tmp_path_factory.mktemp("fresh"))
    nightmill("jobs")
    return nightmill.home


@pytest.fixture(scope="module")
def shared(forkery: Forkery, fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Nightmill:
    """For tests that leave no trace, or do not mind those of others."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copytree(fresh, folder / "home")
    return Nightmill(forkery, folder)


@pytest.fixture
def nightmill(forkery: Forkery, fresh: Path, tmp_path: Path) -> Nightmill:
    """A data directory of the test's own."""
    shutil.copytree(fresh, tmp_path / "home")
    return Nightmill(forkery, tmp_path)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `goods.make_inputs`."""
    return make_inputs(tmp_path_factory.mktemp("inputs"))


Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(nightmill: Nightmill) -> Shell:
    """Runs a script with the console script on the path, as a user's terminal does."""

    def run(script: str, *args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        env = {**nightmill.env, "PATH": f"{Path(COMMAND).parent}:{nightmill.env['PATH']}"}
        command: Sequence[str] = ["bash", "-c", script, "bash", *map(str, args)]
        return subprocess.run(
            command, cwd=cwd or nightmill.folder, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    return run
