"""Speed, measured: `make bench`, or `python -m tests.benchmarks [NAME …]`.

    against_vllm   the same chats through raw vllm.LLM.chat, vLLM's run_batch and `nightmill run`
    million        a Parquet file of a million rows through `nightmill run` with the fake engine
    commits        commits of tasks a second on PostgreSQL and SQLite

ROUNDS (5): rounds of against_vllm and of commits. ROWS (1,000,000): rows of million. Files go to build/benchmarks.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks import against_vllm, commits, machine, million

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "benchmarks"
PIECES: dict[str, Callable[[Path], None]] = {
    "against_vllm": lambda folder: against_vllm.run(folder, rounds=int(os.environ.get("ROUNDS", "5"))),
    "commits": lambda folder: _if_possible(lambda: commits.run(folder, rounds=int(os.environ.get("ROUNDS", "5")))),
    "million": lambda folder: million.run(folder, rows=int(os.environ.get("ROWS", "1000000"))),
}


def _if_possible(piece: Callable[[], None]) -> None:
    """A service that is not there skips a test, and a benchmark too."""
    try:
        piece()
    except pytest.skip.Exception as skipped:
        print(f"left out: {skipped}")


def main() -> None:
    usage, *rest = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(
        description=usage, epilog="\n\n".join(rest), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"{' or '.join(PIECES)}; default: all")
    names = parser.parse_args().name or list(PIECES)
    if unknown := sorted(set(names) - set(PIECES)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PIECES)}")
    for name in names:
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"\n== {name} ==\n{machine.described(folder)}", flush=True)
        PIECES[name](folder)


if __name__ == "__main__":
    main()
