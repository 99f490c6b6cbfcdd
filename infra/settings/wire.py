"""Settings on their way to another process of the same cluster, as JSON."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import orjson

from infra.settings.table import Settings
from jobs.pools import Pool


def to_json(settings: Settings) -> bytes:
    """All of them as they were loaded. They may hold passwords: not for a log."""
    return orjson.dumps(asdict(settings), default=str)


def from_json(data: bytes) -> Settings:
    """The inverse of `to_json`."""
    values: dict[str, Any] = orjson.loads(data)
    for field in fields(Settings):
        if str(field.type).startswith("Path") and values[field.name] is not None:
            values[field.name] = Path(values[field.name])
        if isinstance(values[field.name], list):
            values[field.name] = tuple(values[field.name])
    values["pools"] = tuple(Pool(**pool) for pool in values["pools"])
    return Settings(**values)
