"""Writes odd_lines.jsonl: lines that were or could have been trouble, one a line. Run it to add some; they stay."""

from __future__ import annotations

import base64
from pathlib import Path

import orjson

FILE = Path(__file__).with_suffix(".jsonl")


def odd_lines() -> list[bytes]:
    """The kept lines as bytes; in the file they are base64 where they are not UTF-8 or not one line."""
    return [_bytes(orjson.loads(line)) for line in FILE.read_bytes().splitlines()]


def _bytes(entry: dict[str, str]) -> bytes:
    return base64.b64decode(entry["base64"]) if "base64" in entry else entry["text"].encode()


def keep(line: bytes, why: str) -> None:
    """Add a line that was trouble."""
    try:
        entry = {"why": why, "text": line.decode()}
    except UnicodeDecodeError:
        entry = {"why": why, "base64": base64.b64encode(line).decode()}
    with FILE.open("ab") as file:
        file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
