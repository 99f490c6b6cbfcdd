"""Runs the real `nightmill` in this process, with a trap in it.

    python -m tests.chaos.launcher --at db.commit.after:3 -- run cars.parquet --model fake …
    python -m tests.chaos.launcher --at part.put.before:2=full -- resume last
    python -m tests.chaos.launcher --list

SIGUSR1 makes it print the stacks of all threads.
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from api.cli.main import run
from tests.chaos.points import STEPS, all_points, set_up
from tests.chaos.traps import ACTIONS, Spring, Trap


def spring(text: str) -> Spring:
    """ "POINT:N" or "POINT:N=ACTION"."""
    place, _, action = text.partition("=")
    point, _, number = place.rpartition(":")
    if point not in all_points():
        raise argparse.ArgumentTypeError(f"there is no point {point!r}; see --list")
    if (action or "kill") not in ACTIONS:
        raise argparse.ArgumentTypeError(f"there is no action {action!r}; see --list")
    return Spring(point, int(number), action or "kill")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    about = "Run a nightmill command line and do something to it at the N-th pass of a point."
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.launcher", description=about)
    parser.add_argument("--at", metavar="POINT:N[=ACTION]", type=spring, action="append", default=[], help="see --list")
    parser.add_argument("--hold", metavar="PATH", type=Path, default=Path("trap"), help="for the action hold")
    parser.add_argument("--count", metavar="FILE", type=Path, help="write how often each point was passed, as JSON")
    parser.add_argument("--list", action="store_true", help="print the steps and the actions, and leave")
    parser.add_argument("command", nargs="*", help="what stands behind `nightmill`, after --")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    options = parsed(argv)
    if options.list:
        for name, what in {**STEPS, **ACTIONS}.items():
            print(f"{name:20} {what}")
        return 0
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    trap = Trap(springs=tuple(options.at), hold=options.hold)
    set_up(trap)
    if options.count is not None:
        atexit.register(lambda: options.count.write_text(json.dumps(trap.passes)))
    return run(options.command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
