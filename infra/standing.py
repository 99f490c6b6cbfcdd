"""Which pools a data directory has: those of the settings, or those that `nightmill up` made for its models; and where
its API listens.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from infra.sql import codec
from jobs.pools import Pool

FILE = "pools.json"
ADDRESS = "api.url"


def save_pools(home: Path, pools: Sequence[Pool]) -> None:
    """Note the pools, so that `nightmill submit` in another terminal finds them."""
    _replace(home / FILE, codec.encode(list(pools)))


def load_pools(home: Path) -> tuple[Pool, ...]:
    """Those noted last; none where nothing was."""
    try:
        text = (home / FILE).read_bytes()
    except FileNotFoundError:
        return ()
    return codec.decode(tuple[Pool, ...], text)


def save_address(home: Path, url: str) -> None:
    """Note where the API listens, so that `nightmill chat` in another terminal finds it."""
    _replace(home / ADDRESS, url)


def load_address(home: Path) -> str | None:
    """That noted last; it may be that of a process which is gone."""
    try:
        return (home / ADDRESS).read_text()
    except FileNotFoundError:
        return None


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(path)
