"""An S3 server for tests: moto's, in a process of its own; before it, where a test wants faults, a proxy with them."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from infra.objects.s3_options import S3Options
from tests.support.prepared import missing

if TYPE_CHECKING:
    from infra.objects.s3_client import Login

BUCKET = "nightmill"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
"""moto takes any; the environment of everything that talks to it."""
_STARTS_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running server with one empty bucket, BUCKET."""

    endpoint: str

    def options(self, **changes: object) -> S3Options:
        return S3Options(endpoint=self.endpoint, **changes)  # type: ignore[arg-type]

    @property
    def env(self) -> Mapping[str, str]:
        """For a command line that is to use it."""
        return {**KEYS, "NIGHTMILL_S3_ENDPOINT": self.endpoint}


@cache
def shared_login(options: S3Options) -> Login:
    """As `log_in`, once for all tests with these options: a session takes a third of a second."""
    from infra.objects.s3_client import log_in  # noqa: PLC0415 - boto3 only where it is used

    return log_in(options)


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Start moto's server; skips where it is not installed, and fails there in CI. folder: for its log."""
    for name in ("boto3", "moto", "flask"):
        if find_spec(name) is None:
            missing(f"{name} is not installed: pip install -e '.[dev]'")
    port = _free_port()
    with (folder / "moto.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(port, process)
            server = S3Server(endpoint=f"http://127.0.0.1:{port}")
            _ask(server, "PUT", f"/{BUCKET}")
            yield server
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _STARTS_S
    while True:
        assert process.poll() is None, "moto's server has ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < end, f"moto's server does not listen after {_STARTS_S} s"
            time.sleep(0.05)
        else:
            return


def _ask(server: S3Server, method: str, path: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)
    try:
        connection.request(method, path)
        assert connection.getresponse().status == 200
    finally:
        connection.close()


# ---- the proxy with faults ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked. operation: in S3's words, such as "PutObject"."""

    operation: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return unquote(self.path).lstrip("/").partition("/")[2]

    @property
    def key_id(self) -> str:
        """Whose signature it bears."""
        return self.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]

    @property
    def span(self) -> tuple[int, int] | None:
        """The bytes start ≤ n < stop that a range asks for."""
        text = self.headers.get("range", "")
        if not text:
            return None
        start, stop = text.removeprefix("bytes=").split("-")
        return int(start), int(stop) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """S3's error, given instead of asking the server."""

    status: int
    code: str
    message: str = "made up by the test"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return f"<Error><Code>{self.code}</Code><Message>{self.message}</Message></Error>".encode()


LOSE = "lose"
"""The server gets the request, and its answer never arrives."""
BREAK = "break"
"""The answer's body breaks off in its middle."""
DROP = "drop"
"""The server never sees the request."""
HALF = "half"
"""The server gets half of the body, and then the connection is gone, on both sides."""
Fault = Answer | str | None
Rule = Callable[[Request], Fault]


class FaultyS3:
    """Stands before a server. rule: says for each request what goes wrong with it; asked: all requests so far.

    lost_after_s: how long the client of a lost answer waits before the connection is closed.
    """

    def __init__(self, server: S3Server, *, remember: bool = True) -> None:
        self.rule: Rule = lambda _: None
        self.lost_after_s = 0.0
        self._remember = remember
        self.asked: list[Request] = []
        self._netloc = urlsplit(server.endpoint).netloc
        proxy = self

        class Handler(_Handler):
            faulty = proxy

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.server = S3Server(endpoint=f"http://127.0.0.1:{self._http.server_address[1]}")

    def fail(self, *faults: Fault, operation: str) -> None:
        """The next requests of this operation get these faults, one each."""
        left = list(faults)

        def rule(request: Request) -> Fault:
            return left.pop(0) if left and request.operation == operation else None

        self.rule = rule

    def operations(self) -> list[str]:
        return [request.operation for request in self.asked]

    def reset(self) -> None:
        """As new."""
        self.rule = lambda _: None
        self.asked = []

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def note(self, request: Request) -> None:
        if self._remember:
            self.asked.append(request)

    def forward_half(self, request: Request, target: str) -> None:
        """As a client does that dies while it sends."""
        with socket.create_connection(self._netloc.split(":"), timeout=60) as there:
            head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items() if name != "expect")
            there.sendall(f"{request.method} {target} HTTP/1.1\r\n{head}\r\n".encode())
            there.sendall(request.body[: len(request.body) // 2])

    def forward(self, request: Request, target: str) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._netloc, timeout=60)
        try:
            kept = {name: value for name, value in request.headers.items() if name not in {"connection", "expect"}}
            connection.request(request.method, target, body=request.body or None, headers=kept)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    faulty: FaultyS3
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client has gone
            self.close_connection = True

    def _do(self) -> None:
        request = self._request()
        self.faulty.note(request)
        fault = self.faulty.rule(request)
        if isinstance(fault, Answer):
            self._send(fault.status, [("Content-Type", "application/xml"), *fault.headers.items()], fault.body)
            return
        if fault in {DROP, HALF}:
            if fault == HALF:
                self.faulty.forward_half(request, self.path)
            self.close_connection = True
            return
        status, headers, body = self.faulty.forward(request, self.path)
        if fault == LOSE:
            time.sleep(self.faulty.lost_after_s)
            self.close_connection = True
            return
        self._send(status, headers, body, cut=fault == BREAK)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _do  # noqa: N815 - http.server's names

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        return Request(
            operation=_operation(self.command, unquote(parts.path), query, headers),
            method=self.command,
            path=parts.path,
            query=query,
            headers=headers,
            body=body,
        )

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        given = {name.lower(): value for name, value in headers}
        for name, value in headers:
            if name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                self.send_header(name, value)
        head = self.command == "HEAD"
        self.send_header("Content-Length", given.get("content-length", "0") if head else str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    def log_message(self, *_: object) -> None:
        """Nothing goes to stderr."""


def _operation(method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    copied = "x-amz-copy-source" in headers
    if "uploadId" in query:
        parts = {"PUT": "UploadPartCopy" if copied else "UploadPart", "POST": "CompleteMultipartUpload"}
        return {**parts, "DELETE": "AbortMultipartUpload"}[method]
    if "uploads" in query:
        return "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    if not path.lstrip("/").partition("/")[2]:
        return {"GET": "ListObjectsV2", "POST": "DeleteObjects"}.get(method, f"{method} bucket")
    names = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "CopyObject" if copied else "PutObject"}
    return {**names, "DELETE": "DeleteObject"}[method]
