"""What the app is made of: ports and limits. No adapter is named here; `api/serve.py` chooses them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import Request

from api.rest.alone import NoFront, NoLimits
from jobs.batching import Folder
from jobs.model import Job, Value
from jobs.pools import Pool
from jobs.ports.clock import Clock, Ids
from jobs.ports.intake import Intake, Models
from jobs.ports.limiting import Limiter
from jobs.ports.live import Front
from jobs.ports.objects import Objects
from jobs.ports.reading import Reading
from jobs.ports.results import Results
from jobs.ports.store import Store
from jobs.ports.webhooks import Seal
from jobs.quote import Quote
from jobs.submit import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Value):
    """Bytes of a body (of any request, and of an upload), of all headers; seconds of a request that is no stream.

    generation_s: of an answer that a model makes, a stream or not.

    idle_s: how long a client may neither send nor take anything within a request. file_expires_s: of uploads that do
    not say, None for never. stale_s: after so long an idempotency key whose first request died is taken over.
    wait_s: how long a duplicate waits for the first one's answer. look_s: between two looks at a job that is streamed.
    """

    body_bytes: int = 16 << 20
    upload_bytes: int = 16 << 30
    header_bytes: int = 32 << 10
    request_s: float = 60.0
    generation_s: float = 600.0
    idle_s: float = 30.0
    file_expires_s: float | None = None
    max_lines: int = 5_000_000
    stale_s: float = 65.0
    wait_s: float = 20.0
    look_s: float = 0.5


class Retry(Protocol):
    """Makes the child job of a finished job: its rows of these outcomes. Raises Refused."""

    def __call__(
        self, parent: Job, *, outcomes: str, sampling: Mapping[str, Any], output: str | None, child_id: str
    ) -> Job: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """folder: see `Folder`. pools: what is served now.

    manifest: of a finished job: state, rows, columns, parts. table: rows as a Parquet file's bytes; raises BadInput.
    link: a URL by which anybody may read an object for a while, None where the store gives none. wake: tells the keeper
    and the schedulers that there is work. hidden: beginnings of places that no answer may show. closing: set when
    the server stops. seal: of secrets of webhooks. check_url: raises AddressRefused for what may not be called.
    reading, front, limiter: of interactive requests: what they say, who takes them, what they may.
    """

    store: Store
    objects: Objects
    intake: Intake
    models: Models
    results: Results
    ids: Ids
    clock: Clock
    pools: Callable[[], Sequence[Pool]]
    folder: Folder
    quote: Callable[[Checked], Quote]
    retry: Retry
    manifest: Callable[[Job], Mapping[str, Any] | None]
    table: Callable[[Sequence[Mapping[str, Any]]], bytes]
    seal: Seal
    check_url: Callable[[str], object]
    reading: Reading
    front: Front = field(default_factory=NoFront)
    limiter: Limiter = field(default_factory=NoLimits)
    link: Callable[[str], str | None] = lambda _uri: None
    wake: Callable[[], object] = lambda: None
    hidden: tuple[str, ...] = ()
    limits: Limits = Limits()
    closing: threading.Event = field(default_factory=threading.Event)


def parts_of(request: Request) -> Parts:
    """The parts of the app that serves this request."""
    parts: Parts = request.app.state.parts
    return parts
