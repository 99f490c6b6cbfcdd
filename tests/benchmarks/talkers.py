"""Clients of interactive requests in a process of their own, by raw streams: what they take is not the server's.

`python -m tests.benchmarks.talkers` reads a `Talk` from stdin and writes a `Heard` to stdout, both as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.benchmarks import words

SHARED_WORDS, OWN_WORDS, TEXT_WORDS = 60, 30, 7
_HEAD_BYTES = 1 << 16
_EMPTY = (b'"content":""', b'"content":null')


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """What a server is asked. clients: each with one request under way, for `seconds`.

    kind `chat`: streamed chats of `max_tokens`. kind `embedding`: of `texts` texts at a time. pause_s: of a client
    between two requests, drawn evenly between nothing and twice that. seed: of the prompts, so that two servers can be
    given the same.
    """

    kind: str
    host: str
    port: int
    key: str
    model: str
    clients: int
    seconds: float
    max_tokens: int = 32
    texts: int = 32
    pause_s: float = 0.0
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class Heard:
    """first_s: of each request, until its first token. each_s: between its tokens, on average. end_s: from
    its last token to its end. whole_s: until its end.

    refused: requests that were answered 429 or 503 (not in the figures). tokens: as the servers say.
    """

    first_s: list[float] = field(default_factory=list)
    each_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    refused: int = 0
    tokens: int = 0
    span_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def a_second(self) -> float:
        return len(self.whole_s) / self.span_s


class _Line:
    """One kept connection, HTTP/1.1."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ended = True
        self._left = 0

    async def send(self, path: str, body: bytes) -> int:
        """The status of the answer, whose body `read` gives."""
        if self._reader is None or self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(
                self._talk.host, self._talk.port, limit=_HEAD_BYTES
            )
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self._talk.host}\r\nauthorization: Bearer {self._talk.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        lines = answer.split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:] if b": " in line)
        self._left = int(fields.get(b"content-length", -1))
        self._ended = self._left == 0
        self._closes = fields.get(b"connection") == b"close"
        return int(lines[0].split()[1])

    async def read(self) -> bytes:
        """What came next of the body; empty at its end."""
        assert self._reader is not None
        if self._ended:
            return b""
        if self._left > 0:
            data = await self._reader.readexactly(self._left)
            self._ended = True
        else:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = (await self._reader.readexactly(size + 2))[:-2]
            self._ended = size == 0
        if self._ended and self._closes and self._writer is not None:
            self._writer.close()
        return data


async def _chat(line: _Line, body: bytes, heard: Heard) -> None:
    began = time.perf_counter()
    status = await line.send("/v1/chat/completions", body)
    first = last = None
    rest, tokens, chunks = b"", 0, 0
    while data := await line.read():
        now = time.perf_counter()
        *events, rest = (rest + data).split(b"\n\n")
        for event in events:
            if b'"content":"' in event and not any(empty in event for empty in _EMPTY):
                first, last, chunks = first or now, now, chunks + 1
            elif b'"completion_tokens":' in event:
                tokens = json.loads(event.removeprefix(b"data: "))["usage"]["completion_tokens"]
    if not _served(status, data or rest, heard):
        return
    if first is None or last is None or not tokens:
        raise RuntimeError(f"a stream without tokens: {rest[:300]!r}")
    heard.first_s.append(first - began)
    if tokens > 1 and chunks > 1:
        heard.each_s.append((last - first) / (tokens - 1))
    ended = time.perf_counter()
    heard.end_s.append(ended - last)
    heard.whole_s.append(ended - began)
    heard.tokens += tokens


async def _embed(line: _Line, body: bytes, heard: Heard) -> None:
    began = time.perf_counter()
    status = await line.send("/v1/embeddings", body)
    data = b""
    while more := await line.read():
        data += more
    if _served(status, data, heard):
        heard.whole_s.append(time.perf_counter() - began)


def _served(status: int, said: bytes, heard: Heard) -> bool:
    if status in {429, 503}:
        heard.refused += 1
        return False
    if status != 200:
        raise RuntimeError(f"{status}: {said[:300]!r}")
    return True


def bodies(talk: Talk, rng: random.Random) -> Any:
    """Requests without end: a chat has its beginning in common with all others, its question with none."""
    shared = words.text(random.Random(7), SHARED_WORDS)
    while True:
        if talk.kind == "embedding":
            yield {
                "model": talk.model,
                "input": [words.text(rng, TEXT_WORDS) for _ in range(talk.texts)],
                "encoding_format": "base64",
            }
            continue
        messages = [{"role": "system", "content": shared}, {"role": "user", "content": words.text(rng, OWN_WORDS)}]
        yield {
            "model": talk.model,
            "messages": messages,
            "max_tokens": talk.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def _talk(talk: Talk, heard: Heard) -> None:
    began = time.monotonic()
    until = began + talk.seconds
    ask = _embed if talk.kind == "embedding" else _chat

    async def client(number: int) -> None:
        line, rng = _Line(talk), random.Random(f"{talk.seed} {number}")
        requests = bodies(talk, rng)
        while time.monotonic() < until:
            refused = heard.refused
            await ask(line, json.dumps(next(requests)).encode(), heard)
            if talk.pause_s or heard.refused > refused:
                await asyncio.sleep(rng.uniform(0, 2 * (talk.pause_s or 0.1)))

    await asyncio.gather(*(client(number) for number in range(talk.clients)))
    heard.span_s = time.monotonic() - began


def talked(talk: Talk) -> Heard:
    """Let them talk. Raises RuntimeError where an answer was none of 200, 429 and 503."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.talkers"],
        input=json.dumps(asdict(talk)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return Heard(**json.loads(done.stdout))


def main() -> None:
    talk, heard = Talk(**json.load(sys.stdin)), Heard()
    asyncio.run(_talk(talk, heard))
    used = resource.getrusage(resource.RUSAGE_SELF)
    heard.cpu_s = used.ru_utime + used.ru_stime
    json.dump(asdict(heard), sys.stdout)


if __name__ == "__main__":
    main()
