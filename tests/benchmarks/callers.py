"""Clients of the API in a process of their own, as cheap as Python has them: what they take is not the server's.

`python -m tests.benchmarks.callers` reads an `Asked` from stdin and writes a `Told` to stdout, both as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

FORM = "multipart/form-data; boundary=cut"
END = ("completed", "failed", "expired", "cancelled")
_LOOK_S = 1.0
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one process does. clients: connections at a time, each with one request under way.

    kind `calls`: the same request again and again, for `seconds` or, where that is 0, `times` in all. kind `batches`:
    `times` batches of one line, each with a file of its own, from the upload to the result; `uploaded`: from the
    create, and all files are uploaded before the first.
    """

    kind: str
    host: str
    port: int
    key: str
    clients: int
    seconds: float = 0.0
    times: int = 0
    method: str = "GET"
    path: str = ""
    body: str = ""
    uploaded: bool = False


@dataclass(slots=True, kw_only=True)
class Told:
    """latencies: seconds of every answered request, or of every batch from its upload to its result in hand.
    began_at, ended_at: wall clock. cpu_s: what this process took. answers: of the first requests, as text.
    """

    latencies: list[float] = field(default_factory=list)
    began_at: float = 0.0
    ended_at: float = 0.0
    cpu_s: float = 0.0
    answers: list[str] = field(default_factory=list)


class Refused(Exception):
    """An answer that is none of 2xx."""


class Line:
    """One kept connection, HTTP/1.1; a request at a time."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
        """The body of the answer. Raises Refused."""
        if self._reader is None or self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(
                self._asked.host, self._asked.port, limit=_HEAD_BYTES
            )
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._asked.host}\r\nauthorization: Bearer {self._asked.key}\r\n"
            f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:] if b": " in line)
        data = await self._body(self._reader, fields)
        if not lines[0].split()[1].startswith(b"2"):
            raise Refused(f"{method} {path}: {lines[0].decode()} {data[:300].decode()}")
        if fields.get(b"connection") == b"close":
            self._writer.close()
        return data

    @staticmethod
    async def _body(reader: asyncio.StreamReader, fields: dict[bytes, bytes]) -> bytes:
        if b"content-length" in fields:
            return await reader.readexactly(int(fields[b"content-length"]))
        data = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            data += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        return data


async def _calls(asked: Asked, told: Told) -> None:
    until = time.monotonic() + asked.seconds if asked.seconds else float("inf")
    left = [asked.times or 1 << 62]

    async def client() -> None:
        line = Line(asked)
        while left[0] > 0 and time.monotonic() < until:
            left[0] -= 1
            began = time.perf_counter()
            data = await line.call(asked.method, asked.path, asked.body.encode())
            told.latencies.append(time.perf_counter() - began)
            if len(told.answers) < 1000:
                told.answers.append(data.decode())

    await asyncio.gather(*(client() for _ in range(asked.clients)))


async def _batches(asked: Asked, told: Told) -> None:
    """Half of the connections make them, half fetch results, the oldest first."""
    made: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    numbers = iter(range(asked.times))
    files: list[str] = []

    async def upload(line: Line) -> str:
        file = json.loads(await line.call("POST", "/v1/files", form(asked.body.encode()), FORM))
        return str(file["id"])

    async def uploader() -> None:
        line = Line(asked)
        while len(files) + uploading[0] < asked.times:
            uploading[0] += 1
            file = await upload(line)
            uploading[0] -= 1
            files.append(file)

    async def maker() -> None:
        line = Line(asked)
        for number in numbers:
            began = time.perf_counter()
            body = {
                "input_file_id": files[number] if asked.uploaded else await upload(line),
                "endpoint": "/v1/chat/completions",
                "completion_window": "24h",
            }
            batch = json.loads(await line.call("POST", "/v1/batches", json.dumps(body).encode()))
            made.put_nowait((batch["id"], began))

    async def ended(line: Line, name: str) -> dict[str, Any]:
        while True:
            batch: dict[str, Any] = json.loads(await line.call("GET", f"/v1/batches/{name}"))
            if batch["status"] in END:
                return batch
            await asyncio.sleep(_LOOK_S)

    async def fetcher() -> None:
        line = Line(asked)
        while len(told.latencies) + fetching[0] < asked.times:
            fetching[0] += 1
            name, began = await made.get()
            batch = await ended(line, name)
            if batch["status"] != "completed":
                raise Refused(f"{name}: {batch['status']} {batch['errors']}")
            lines = (await line.call("GET", f"/v1/files/{batch['output_file_id']}/content")).splitlines()
            assert len(lines) == 1, lines
            fetching[0] -= 1
            told.latencies.append(time.perf_counter() - began)

    fetching, uploading = [0], [0]
    half = max(1, asked.clients // 2)
    if asked.uploaded:
        await asyncio.gather(*(uploader() for _ in range(half)))
        told.began_at = time.time()
    await asyncio.gather(*(maker() for _ in range(half)), *(fetcher() for _ in range(half)))


def form(data: bytes, name: str = "in.jsonl") -> bytes:
    """The body of an upload, of content type `FORM`."""
    head, tail = form_ends(name)
    return head + data + tail


def form_ends(name: str) -> tuple[bytes, bytes]:
    """What stands before and after a file's bytes in the body of an upload."""
    head = (
        '--cut\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--cut\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    )
    return head.encode(), b"\r\n--cut--\r\n"


def call_all(asked: Sequence[Asked]) -> list[Told]:
    """All at the same time, a process each. Raises RuntimeError where one fails."""
    command = [sys.executable, "-m", "tests.benchmarks.callers"]
    began = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in asked]
    for process, one in zip(began, asked, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(one)))
        process.stdin.close()
    texts = [process.stdout.read() for process in began if process.stdout is not None]
    if any(process.wait() for process in began):
        raise RuntimeError(f"a client failed: {[process.returncode for process in began]}")
    return [Told(**json.loads(text)) for text in texts]


def main() -> None:
    found: dict[str, Any] = json.load(sys.stdin)
    asked, told = Asked(**found), Told()
    told.began_at = time.time()
    asyncio.run(_batches(asked, told) if asked.kind == "batches" else _calls(asked, told))
    told.ended_at = time.time()
    used = resource.getrusage(resource.RUSAGE_SELF)
    told.cpu_s = used.ru_utime + used.ru_stime
    json.dump(asdict(told), sys.stdout)


if __name__ == "__main__":
    main()
