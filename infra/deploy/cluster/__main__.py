"""`python -m infra.deploy.cluster up|down|status [--folder DIR]`: what `make cluster` runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from infra.deploy.cluster.service import Failed
from infra.deploy.cluster.town import Town

ROOT = Path(__file__).resolve().parents[3]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.deploy.cluster", description=__doc__)
    parser.add_argument("what", choices=("up", "down", "status"))
    parser.add_argument("--folder", type=Path, default=ROOT / ".nightmill" / "cluster", help="where all of it lies")
    parser.add_argument("--without", action="append", default=[], help="a service to leave out: kafka, …")
    given = parser.parse_args(arguments)
    town = Town(given.folder.resolve(), without=frozenset(given.without))
    doing = {"up": town.up, "down": town.down, "status": town.status}
    try:
        return doing[given.what]()
    except Failed as why:
        print(f"cluster: {why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
