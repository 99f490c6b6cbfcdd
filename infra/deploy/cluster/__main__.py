"""`python -m infra.deploy.cluster up|down|status [--config FILE | --folder DIR]`: what `make cluster` runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from infra.deploy.cluster.config import read_config
from infra.deploy.cluster.service import Failed
from infra.deploy.cluster.town import Town

ROOT = Path(__file__).resolve().parents[3]
LOCAL = ROOT / "infra/deploy/local.toml"
CARS = ROOT / "examples/cars.parquet"
"""Written by examples/make_cars.py."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.deploy.cluster", description=__doc__)
    parser.add_argument("what", choices=("up", "down", "status"))
    parser.add_argument("--config", type=Path, default=LOCAL, help="settings that name the services and their ports")
    parser.add_argument("--folder", type=Path, help="instead: where all of it lies, on ports that are free")
    parser.add_argument("--without", action="append", default=[], help="a service to leave out: kafka, …")
    given = parser.parse_args(arguments)
    try:
        town = _town(given.config, given.folder, frozenset(given.without))
        doing = {"up": town.up, "down": town.down, "status": town.status}
        return doing[given.what]()
    except Failed as why:
        print(f"cluster: {why}", file=sys.stderr)
        return 1


def _town(file: Path, folder: Path | None, without: frozenset[str]) -> Town:
    if folder is not None:
        return Town(folder.resolve(), without=without)
    config = read_config(file)
    return Town(config.folder, without=without, config=config, goods={"catalog/cars.parquet": CARS})


if __name__ == "__main__":
    sys.exit(main())
