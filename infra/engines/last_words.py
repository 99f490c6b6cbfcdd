"""From a log that an engine left behind to the one sentence that says why it did not start."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

TAIL_BYTES = 256 * 1024
MAX_CHARS = 600
_PREFIX = re.compile(r"^(\([\w ]+pid=\d+\) )?((DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.]+ \[[^\]]*\] ?)?")
_ERROR = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception|Exit|Interrupt|Failed|Refused))(?::\s*(.*))?$")
_EMPTY_PHRASES = ("see root cause above", "Failed core proc", "Engine core initialization failed")
_FATAL = re.compile(
    r"out of memory|segmentation fault|bus error|illegal instruction|cannot open shared object", re.IGNORECASE
)


def read_tail(log: Path, start: int) -> list[str]:
    """The lines written since byte `start`, at most the last 256 KiB of them."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def useful_error(lines: Sequence[str]) -> str:
    """The root cause among the lines: the first exception that says something, else the last words at all."""
    bare = [_PREFIX.sub("", line).rstrip() for line in lines]
    for line in bare:
        found = _ERROR.match(line)
        if found and found[2] and not any(phrase in line for phrase in _EMPTY_PHRASES):
            return _short(f"{found[1]}: {found[2]}")
    for line in bare:
        if _FATAL.search(line):
            return _short(line)
    return _short(" / ".join([line.strip() for line in bare if line.strip()][-3:]))


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
