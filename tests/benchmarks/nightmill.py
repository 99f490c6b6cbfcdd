"""`nightmill run` as a user starts it, in a process of its own and a data directory of the benchmark's."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.watch import Watched, watched

COMMAND = [sys.executable, "-m", "api.cli.main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """end: the run's last event; its `seconds` are those of generating, the engine's start not among them."""

    watched: Watched
    end: dict[str, Any]

    @property
    def rows_per_s(self) -> float:
        rows: int = self.end["rows"]
        return rows / self.end["seconds"]


def nightmill(home: Path, *words: str) -> Watched:
    """A command. Raises RuntimeError with its output when it fails."""
    log = home.with_name(f"{home.name}-{words[0]}.log")
    done = watched([*COMMAND, *words], env={**os.environ, "NIGHTMILL_HOME": str(home)}, log=log)
    if done.exit_code:
        msg = (
            f"nightmill {' '.join(words)} ended with {done.exit_code}:\n{done.stdout[-2000:]}{log.read_text()[-4000:]}"
        )
        raise RuntimeError(msg)
    return done


def run(home: Path, source: Path, output: Path, options: Sequence[str]) -> Ran:
    """A job to its end, all of its rows generated."""
    words = ["run", str(source), "--output", str(output), "--id", "id", "--pause-on", "never", "--json", *options]
    done = nightmill(home, *words)
    end = json.loads(done.stdout.splitlines()[-1])
    if end.get("event") != "end" or end["rows"] != end["total_rows"]:
        msg = f"the run did not end as it should: {end}"
        raise RuntimeError(msg)
    return Ran(watched=done, end=end)
