"""One batch of very many lines through the REST API of `nightmill up`, embedded, on the fake engine: the file is
uploaded, the batch checked and run, its output read back. Each line must have come back exactly once, under its own
`custom_id`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.api import MIB, content, get, send, upload
from tests.benchmarks.served import Served, served
from tests.benchmarks.watch import watching

PIECE = 5_000
LOOK_S = 0.5
OVER = frozenset({"completed", "failed", "expired", "cancelled"})
REST = (
    '"method":"POST","url":"/v1/chat/completions",'
    '"body":{"model":"fake","messages":[{"role":"user","content":"hello"}],"max_tokens":8}}\n'
)
NAME = re.compile(rb'"custom_id":\s*"(\d+)"')


def run(folder: Path, lines: int) -> None:
    """Print what each step took. Raises RuntimeError where a line has no result or more than one."""
    with served(folder / "embedded", cluster=False) as api:
        size = sum(len(piece) for piece in _pieces(lines))
        with watching(api.tree):
            began = time.monotonic()
            file = upload(api, _pieces(lines), size)
            began = _told("uploaded", lines, began)
            ended = _batch(api, file, lines, began)
            if ended["status"] != "completed":
                raise RuntimeError(f"the batch is {ended['status']}: {ended['errors']}")
            began = time.monotonic()
            _check(api, ended["output_file_id"], lines)
            _told("read back, each once", lines, began)
        peaks = {seen.name: seen.peak_bytes / MIB for seen in api.tree.by_name()}
        print(f"peak of memory, MiB: server {peaks['main']:,.0f}, scheduler {peaks['scheduler']:,.0f}", flush=True)


def _batch(api: Served, file: str, lines: int, began: float) -> Any:
    """From the create to the end."""
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = json.loads(send(api, "POST", "/v1/batches", json.dumps(asked).encode()))
    state = batch["status"]
    while state not in OVER:
        time.sleep(LOOK_S)
        batch = get(api, f"/v1/batches/{batch['id']}")
        if batch["status"] != state:
            began, state = _told(f"{state} until it was {batch['status']}", lines, began), batch["status"]
    return batch


def _told(what: str, lines: int, began: float) -> float:
    """Monotonic time now."""
    now = time.monotonic()
    print(f"{lines:,} lines {what}: {now - began:,.1f} s, {lines / (now - began):,.0f} a second", flush=True)
    return now


def _pieces(lines: int) -> Iterator[bytes]:
    for first in range(0, lines, PIECE):
        names = range(first, min(first + PIECE, lines))
        yield "".join(f'{{"custom_id":"{name}",{REST}' for name in names).encode()


def _check(api: Served, file: str, lines: int) -> None:
    seen, rest, read = bytearray(lines), b"", 0
    for data in content(api, file):
        whole, _, rest = (rest + data).rpartition(b"\n")
        for name in NAME.findall(whole):
            seen[int(name)] = min(2, seen[int(name)] + 1)
            read += 1
    if rest or seen.count(1) != lines or read != lines:
        raise RuntimeError(f"{seen.count(0):,} lines have no result, {seen.count(2):,} more than one")
