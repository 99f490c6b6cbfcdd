"""Which pools a data directory has: those of the settings, or those that `nightmill up` made for its models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from infra.sql import codec
from jobs.pools import Pool

FILE = "pools.json"


def save_pools(home: Path, pools: Sequence[Pool]) -> None:
    """Note the pools, so that `nightmill submit` in another terminal finds them."""
    path = home / FILE
    fresh = path.with_name(f"{FILE}.{os.getpid()}")
    fresh.write_text(codec.encode(list(pools)))
    fresh.replace(path)


def load_pools(home: Path) -> tuple[Pool, ...]:
    """Those noted last; none where nothing was."""
    try:
        text = (home / FILE).read_bytes()
    except FileNotFoundError:
        return ()
    return codec.decode(tuple[Pool, ...], text)
