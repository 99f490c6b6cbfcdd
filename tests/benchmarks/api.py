"""The REST API of `nightmill up`, embedded (uvicorn) and on a local Ray (Ray Serve behind HAProxy), by raw HTTP.

Creates and reads a second at 1, 8 and 64 clients; rows a second that come inline; batches of one line from the upload
to the result; a large upload and download with the growth of the server's memory. All on the fake engine, and all of it
on this machine, clients too: what they took is printed beside each figure.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.benchmarks.callers import FORM, form, form_ends
from tests.benchmarks.served import Served, served, table, until

T = TypeVar("T")
CLIENTS = (1, 8, 64)
GOAL_ROWS, GOAL_BATCHES, GOAL_GROWTH_MIB = 20_000, 200, 64
MIB = 1 << 20
LOOK_S, PATIENCE_S = 0.05, 600.0
POST_ROWS, POSTERS = 10_000, 4
LINE = json.dumps(
    {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8},
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """seconds: of each round of creates and reads. rows: inline ones. batches: of one line each. upload_mib,
    download_mib: of the large file, which is read again and again until so much has come.
    """

    seconds: float
    rows: int
    batches: int
    upload_mib: int
    download_mib: int


def run(folder: Path, sizes: Sizes, *, cluster: bool) -> None:
    """Print a table a piece."""
    with served(folder / "embedded", cluster=False) as api:
        print("\nembedded: uvicorn and the workers in one process, the scheduler in another", flush=True)
        _rows(api, sizes.rows)
        _reads(api, sizes.seconds)
        _batches(api, sizes.batches)
        _files(api, sizes)
        _creates(api, sizes.seconds)  # the last: a backlog of batches is left
    if cluster:
        with served(folder / "cluster", cluster=True) as api:
            print("\non a local Ray: two replicas of Ray Serve behind HAProxy, the workers beside them", flush=True)
            _rows(api, sizes.rows)
            _reads(api, sizes.seconds)
            _creates(api, sizes.seconds)


def _rows(api: Served, rows: int) -> None:
    """Accepted: checked, written and durable. Their work goes on meanwhile, and is waited for."""
    each = min(rows, POST_ROWS)
    body = {
        "rows": [{"name": f"lamp {n}", "text": "brass, with a shade of green glass"} for n in range(each)],
        "model": "fake",
        "prompt": "Describe {{ name }}: {{ text }}",
        "max_tokens": 8,
        "pause_on": "never",
    }
    round_ = api.ask(POSTERS, kind="calls", times=rows // each, method="POST", path="/v1/jobs", body=json.dumps(body))
    rate = round_.a_second * each
    jobs = [json.loads(answer)["id"] for one in round_.told for answer in one.answers]
    until(lambda: all(get(api, f"/v1/jobs/{job}")["state"] == "completed" for job in jobs), PATIENCE_S)
    ended_s = time.time() - min(one.began_at for one in round_.told)
    print(table("inline rows", [(f"posts of {each:,}, {POSTERS} clients", round_)]))
    print(f"{rate:,.0f} rows a second accepted (goal: {GOAL_ROWS:,}), {rows / ended_s:,.0f} to the end", flush=True)


def _reads(api: Served, seconds: float) -> None:
    job = get(api, "/v1/jobs?limit=1")["data"][0]["id"]
    rounds = [(f"{n} clients", api.ask(n, kind="calls", seconds=seconds, path=f"/v1/jobs/{job}")) for n in CLIENTS]
    print(table("job reads", rounds), flush=True)


def _creates(api: Served, seconds: float) -> None:
    """The batches before are worked on meanwhile."""
    answer = json.loads(send(api, "POST", "/v1/files", form(LINE.encode()), FORM))
    body = {"input_file_id": answer["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    asked = {"kind": "calls", "method": "POST", "path": "/v1/batches", "body": json.dumps(body)}
    rounds = [(f"{n} clients", api.ask(n, seconds=seconds, **asked)) for n in CLIENTS]
    print(table("batch creates", rounds), flush=True)


def _batches(api: Served, batches: int) -> None:
    whole = api.ask(64, kind="batches", times=batches, body=LINE)
    cpu_ms = 1000 * whole.server_s / batches
    created = api.ask(64, kind="batches", times=batches, body=LINE, uploaded=True)
    rounds = [(f"{batches:,}, upload to result", whole), (f"{batches:,}, create to result", created)]
    print(table("one-line batches", rounds))
    print(
        f"{created.a_second:,.0f} a second from create to result (goal: {GOAL_BATCHES}), {whole.a_second:,.0f} with "
        f"uploads; {cpu_ms:.1f} ms of the server's CPU each",
        flush=True,
    )


# ---- large files --------------------------------------------------------------------------------


def _files(api: Served, sizes: Sizes) -> None:
    server = psutil.Process(api.tree.root.pid)
    file, up_s, up_mib = _measured(server, lambda: _upload(api, sizes.upload_mib))
    _, down_s, down_mib = _measured(server, lambda: _download(api, file, sizes.download_mib))
    for what, mib, took_s, grown in (
        ("upload", sizes.upload_mib, up_s, up_mib),
        ("download", sizes.download_mib, down_s, down_mib),
    ):
        rate = f"{mib / took_s:,.0f} MiB/s"
        print(f"{what} of {mib:,} MiB: {rate}, memory grew by {grown:,.0f} MiB (goal: {GOAL_GROWTH_MIB})", flush=True)


def _measured(server: psutil.Process, work: Callable[[], T]) -> tuple[T, float, float]:
    """(what it gave, seconds, MiB that the server's resident memory was above its start at most)."""
    before = most = server.memory_info().rss
    over = threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(LOOK_S):
            most = max(most, server.memory_info().rss)

    watcher = threading.Thread(target=look)
    watcher.start()
    began = time.perf_counter()
    try:
        found = work()
    finally:
        over.set()
        watcher.join()
    return found, time.perf_counter() - began, (most - before) / MIB


def _upload(api: Served, mib: int) -> str:
    line = LINE.encode() + b"\n"
    chunk = line * (MIB // len(line))
    whole, rest = divmod(mib * MIB, len(chunk))
    tail = line * (rest // len(line))
    return upload(api, chain(repeat(chunk, whole), [tail]), whole * len(chunk) + len(tail))


def upload(api: Served, pieces: Iterable[bytes], size: int) -> str:
    """A file that comes in pieces, of so many bytes in all; its id."""
    head, end = form_ends("large.jsonl")
    body = chain([head], pieces, [end])
    return str(json.loads(send(api, "POST", "/v1/files", body, FORM, len(head) + size + len(end)))["id"])


def _download(api: Served, file: str, mib: int) -> None:
    left = mib * MIB
    while left > 0:
        for data in content(api, file):
            left -= len(data)
            if left <= 0:
                break


def content(api: Served, file: str) -> Iterator[bytes]:
    """Of a file, a MiB at a time."""
    connection = http.client.HTTPConnection(api.host, api.port, timeout=PATIENCE_S)
    connection.request("GET", f"/v1/files/{file}/content", headers={"authorization": f"Bearer {api.key}"})
    answer = connection.getresponse()
    assert answer.status == http.client.OK, answer.read(300)
    try:
        while data := answer.read(MIB):
            yield data
    finally:
        connection.close()


def get(api: Served, path: str) -> Any:
    """What it answers."""
    return json.loads(send(api, "GET", path))


def send(
    api: Served,
    method: str,
    path: str,
    body: bytes | Iterator[bytes] = b"",
    kind: str = "application/json",
    size: int | None = None,
) -> bytes:
    """size: of a body that comes in pieces. Raises RuntimeError for an answer that is none of 2xx."""
    connection = http.client.HTTPConnection(api.host, api.port, timeout=PATIENCE_S)
    headers = {"authorization": f"Bearer {api.key}", "content-type": kind}
    if size is not None:
        headers["content-length"] = str(size)
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if answer.status // 100 != 2:
        raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
    return data
