"""A conversation with an API over HTTP: one request at a time, its answer as it comes."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from jobs.errors import Refused, Unavailable
from jobs.model import Value

_CONNECT_S = 10.0
_SILENT_S = 660.0
"""Longer than an answer may take by default."""
_PATIENCE_S = 180.0
"""How long a model may take to start."""
_LOOK_S = 2.0

Message = dict[str, str]


class NobodyThere(Unavailable):
    """Nothing answers at {url}. Run `nightmill up` in another terminal, or name one that runs with --url and --key."""

    code = "nobody_there"


class ChatRefused(Refused):
    """{reason}"""

    code = "chat_refused"


class ChatFailed(Unavailable):
    """{reason}"""

    code = "chat_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Value):
    """Where an API is, and the key to it. url: without /v1."""

    url: str
    key: str


class Line:
    """A line to an API. waiting: is told, once a request, that a worker has to start first."""

    def __init__(self, place: Place, waiting: Callable[[str], object]) -> None:
        self._place = place
        self._waiting = waiting
        self._at = urlsplit(place.url)

    def check(self) -> None:
        """Whether anything answers. Raises NobodyThere."""
        connection = self._connection()
        try:
            self._sent(connection, "GET", "/healthz", None)
        finally:
            connection.close()

    def models(self) -> list[str]:
        """Names that requests may have. Raises NobodyThere, ChatRefused."""
        with self._asked("GET", "/v1/models", None) as answer:
            return [model["id"] for model in json.loads(answer.read())["data"]]

    def events(
        self, model: str, messages: Sequence[Message], sampling: dict[str, Any]
    ) -> Generator[dict[str, Any], None, None]:
        """Chunks of an answer. Closing the iterator ends the request. Raises ChatRefused, ChatFailed, NobodyThere."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"model": model, "messages": list(messages), **sampling, **options}
        with self._asked("POST", "/v1/chat/completions", body) as answer:
            for raw in answer:
                data = raw.strip().removeprefix(b"data: ")
                if data == b"[DONE]":
                    return
                if data:
                    yield _checked(json.loads(data))
        raise ChatFailed(reason="The answer ended before its end.")

    @contextmanager
    def _asked(self, method: str, path: str, body: Any) -> Iterator[http.client.HTTPResponse]:
        """Again while there is no room: a model that sleeps is woken by being asked."""
        end = time.monotonic() + _PATIENCE_S
        told = False
        while True:
            connection = self._connection()
            try:
                answer = self._sent(connection, method, path, body)
                if answer.status == 200:
                    yield answer
                    return
                error = _error_of(answer)
            finally:
                connection.close()
            after = float(answer.headers.get("retry-after", 0))
            if answer.status not in {429, 503} or not after or time.monotonic() > end:
                raise (ChatRefused if answer.status < 500 else ChatFailed)(reason=error)
            if not told:
                self._waiting(error)
                told = True
            time.sleep(min(after, _LOOK_S))

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._at.scheme == "https" else http.client.HTTPConnection
        return kind(self._at.hostname or "", self._at.port, timeout=_CONNECT_S)

    def _sent(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any
    ) -> http.client.HTTPResponse:
        headers = {"authorization": f"Bearer {self._place.key}", "content-type": "application/json"}
        raw = None if body is None else json.dumps(body).encode()
        try:
            connection.connect()
            connection.sock.settimeout(_SILENT_S)
            connection.request(method, self._at.path.rstrip("/") + path, raw, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise NobodyThere(url=self._place.url, reason=str(error)) from error


def _error_of(answer: http.client.HTTPResponse) -> str:
    try:
        return str(json.loads(answer.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"The API answered {answer.status}."


def _checked(event: dict[str, Any]) -> dict[str, Any]:
    if "error" in event:
        raise ChatFailed(reason=str(event["error"]["message"]))
    return event
