"""A job on a stage: its input, the commands that run it, and how they are brought to their end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
COMMAND_S = 90.0
"""Longer than any command here takes, on a busy machine too: one that lasts longer hangs."""
TERMINAL = frozenset({"completed", "failed", "cancelled", "expired"})
_GROUPS = ("A long and patient introduction that many rows share. " * 6, "Another one, for the rest of them. " * 8)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A kind of job. options: of `nightmill run`; engine: arguments of the fake engine; settings: NIGHTMILL_*.

    words: row → a word in its prompt that the fake engine may be told to stumble over.
    """

    name: str
    rows: int
    options: tuple[str, ...] = ()
    engine: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    lines: bool = False
    task_rows: int = 32
    words: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A command's end. killed: by SIGKILL."""

    code: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Hung(AssertionError):
    """A command did not end; its message has the stacks of its threads."""


class Scene:
    """One input and one job, below `folder`. home: a data directory that is shared with other scenes.

    key: the idempotency key of the job, by which a second `run` goes on with it.
    """

    def __init__(self, folder: Path, variant: Variant, *, home: Path | None = None, key: str = "chaos") -> None:
        self.folder = folder
        self.variant = variant
        self.home = home or folder / "home"
        self.out = folder / "out"
        self.key = key
        self.hold = folder / "hold"
        self.story: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.input = write_input(folder, variant)

    # ---- commands -------------------------------------------------------------------------------

    def start(self, *command: str, at: Sequence[str] = (), count: Path | None = None) -> Running:
        """Begin a `nightmill` command. at: what happens to it ("POINT:N=ACTION"); count: the file for its passes."""
        trap = [word for text in at for word in ("--at", text)] + (["--count", str(count)] if count else [])
        line = [sys.executable, "-m", "tests.chaos.launcher", *trap, "--hold", str(self.hold), "--", *command]
        self.story.append(" ".join([*trap, "--", *command[:2]]))
        chosen = {"BEAT_S": 0.2, **self.variant.settings}
        env = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTMILL_")}
        env |= {"NIGHTMILL_HOME": str(self.home), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        env |= {f"NIGHTMILL_{name}": str(value) for name, value in chosen.items()}
        return Running(line, env=env, folder=self.folder)

    def nightmill(self, *command: str, at: Sequence[str] = (), count: Path | None = None) -> Finished:
        """A command, to its end."""
        finished = self.start(*command, at=at, count=count).wait()
        self.story[-1] += f" → {finished.code}"
        return finished

    def run_line(self, *more: str) -> list[str]:
        """The `run` command of this variant."""
        variant = self.variant
        line = ["run", self.input.name, "--model", "fake", "--output", str(self.out), "--quiet"]
        line += ["--rows-per-task", str(variant.task_rows), "--idempotency-key", self.key]
        for name, value in variant.engine.items():
            line += ["--engine-arg", f"{name}={value}"]
        return [*line, *variant.options, *more]

    def next_line(self, *, by_key: bool = False) -> list[str]:
        """What a user does after a crash: `resume`, or the same `run` again (the only way if there is no job yet)."""
        job = self.job()
        if job is None or (by_key and job["state"] != "paused"):
            return self.run_line()
        return [
            "resume",
            job["id"],
            "--quiet",
            "--engine-arg",
            "rows_per_s=2000",
            "--engine-arg",
            "row_latency_s=0",
            "--engine-arg",
            "start_s=0",
        ]

    def finish(self, *, by_key: bool = False) -> None:
        """Bring the job to its end, whatever it takes; a pause (a sample) is gone over."""
        for _ in range(6):
            over = (self.job() or {}).get("state") in TERMINAL
            done = self.nightmill(*self.next_line(by_key=by_key))
            # A job that is over is refused, once what its dead process left undone is done.
            assert done.code in ({0, 2, 3, 5} if over else {0, 3, 4, 5}), f"exit {done.code}: {done.err}"
            job = self.job()
            assert job is not None, f"no job after: {self.story}"
            if job["state"] in TERMINAL:
                return
        raise AssertionError(f"the job does not end: {self.story}")

    # ---- what stands in the database ------------------------------------------------------------

    def job(self) -> dict[str, Any] | None:
        """The job's record."""
        found = self.query("SELECT id, state, reason, sealed_at FROM jobs WHERE idempotency_key = ?", self.key)
        return found[0] if found else None

    def query(self, text: str, *values: Any, file: str = "nightmill.db") -> list[dict[str, Any]]:
        """Rows of a database of this home; none where its tables are not there yet."""
        path = self.home / file
        if not path.exists():
            return []
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            try:
                return [dict(row) for row in connection.execute(text, values)]
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise

    def folder_of_job(self) -> Path:
        job = self.job()
        assert job is not None
        return self.out / job["id"]


class Running:
    """A command that has been started, in a session of its own."""

    def __init__(self, line: Sequence[str], *, env: Mapping[str, str], folder: Path) -> None:
        self._files = [folder / f"{time.monotonic_ns()}.{name}" for name in ("out", "err")]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.process = subprocess.Popen(
                line,
                env=dict(env),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def wait(self, timeout_s: float = COMMAND_S) -> Finished:
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
            self.process.kill()
            self.process.wait()
            raise Hung(f"{self.process.args} did not end in {timeout_s:g} s: {self.texts()[1]}") from None
        out, err = self.texts()
        return Finished(code=code, out=out, err=err)

    def texts(self) -> tuple[str, str]:
        return self._files[0].read_text(errors="replace"), self._files[1].read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def signal_engine(self, number: int) -> bool:
        """A signal to the group of the engine; whether there was one."""
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            for child in psutil.Process(self.process.pid).children():
                os.killpg(child.pid, number)
                return True
        return False


def leftovers(home: Path) -> list[str]:
    """Processes that were started for this home and still live."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("NIGHTMILL_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def write_input(folder: Path, variant: Variant) -> Path:
    """The same rows for the same variant; a file that is there stays."""
    path = folder / ("in.jsonl" if variant.lines else "in.parquet")
    if path.exists():
        return path
    if variant.lines:
        path.write_text("".join(json.dumps(_line(number)) + "\n" for number in range(variant.rows)))
    else:
        rows = range(variant.rows)
        table = pa.table(
            {
                "id": [f"r-{number:04d}" for number in rows],
                "group": [_GROUPS[number % 2] for number in rows],
                "name": [None if number % 41 == 7 else f"thing {number % 13}" for number in rows],
                "word": [variant.words.get(number, "plain") for number in rows],
                "price": [number / 8 for number in rows],
                "parts": [list(range(number % 4)) for number in rows],
            }
        )
        pq.write_table(table, path, row_group_size=100)
    return path


def _line(number: int) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": f"Tell me of thing {number}."}]}
    if number % 3 == 0:
        body["max_tokens"] = 12
    if number % 5 == 0:
        body["messages"].insert(0, {"role": "system", "content": "You are brief. " * 20})
    if number % 37 == 0:
        body["messages"][-1]["content"] = " "
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
