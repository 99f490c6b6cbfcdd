"""Webhooks for tests: values, a receiver that listens on this machine, and a seal that anybody can break."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jobs.webhooks import Delivery, Webhook, event_body

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class PaperSeal:
    """`jobs.ports.webhooks.Seal`, for tests."""

    def seal(self, text, about):
        return "|".join([text, *about])

    def open(self, sealed, about):
        text, *other = sealed.split("|")
        assert other == [*about]
        return text


def a_webhook(webhook_id="we_a", **changes):
    hook = Webhook(
        id=webhook_id,
        tenant="default",
        url="https://hooks.example/x",
        sealed=PaperSeal().seal(SECRET, ("default", webhook_id)),
        created_at=5.0,
    )
    return hook.evolve(**changes)


def a_delivery(**changes):
    body = event_body("job.completed", "job-a", 1_700_000_000.0)
    delivery = Delivery(
        id="msg_a", webhook="we_a", tenant="default", subject="job-a", event="job.completed", body=body, created_at=5.0,
        attempts=1,
    )  # fmt: skip
    return delivery.evolve(**changes)


@dataclass(frozen=True, kw_only=True)
class Got:
    """A request that came. headers: names in small letters."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(kw_only=True)
class Receiver:
    """answer: from what came to (status, headers, body)."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    answer: Callable[[Got], tuple[int, dict[str, str], bytes]] = lambda _: (204, {}, b"")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ids(self) -> list[str]:
        return [one.headers["webhook-id"] for one in self.got]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listens on 127.0.0.1."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            got = Got(path=self.path, headers={k.lower(): v for k, v in self.headers.items()}, body=body)
            found.got.append(got)
            status, headers, content = found.answer(got)
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
