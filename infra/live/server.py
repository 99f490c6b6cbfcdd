"""A worker's door, served to the processes of the API: one connection each, all requests on it.

Whoever connects must begin with the secret, which only the worker's report tells. What a connection asked for ends with
it: its requests are aborted, and nobody pays for them, since they may be asked elsewhere.
"""

from __future__ import annotations

import hmac
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import structlog

from infra.engines.frames import encode_frame
from infra.live import wire
from infra.live.channel import Channel
from jobs.ports.live import Door
from jobs.requests import End, Ended, Said

log = structlog.get_logger()

LOAD_EVERY_S = 0.05
"""The load is told on change, and not more often."""
LOAD_AT_LEAST_S = 2.0
HELLO_S = 5.0
CONNECTIONS = 512

_Word = tuple[int, Said] | bytes


class DoorServer:
    """From its making until `close`. host: the address to listen on, and to be told to others; the port is any.

    lose: of a request whose connection broke. listen: calls what it is given whenever the door's load may have changed.
    """

    def __init__(
        self, door: Door, *, host: str, lose: Callable[[str], None], listen: Callable[[Callable[[], None]], None]
    ) -> None:
        self._door = door
        self._lose = lose
        self.secret = secrets.token_urlsafe(32)
        self._sock = socket.create_server((host, 0), backlog=128)
        self.address = f"{host}:{self._sock.getsockname()[1]}"
        self._callers: set[_Caller] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._changed = threading.Event()
        listen(self._changed.set)
        for name, work in (("door-accept", self._accept), ("door-load", self._tell_load)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def close(self) -> None:
        """No more connections, and an end to those there are."""
        self._closed.set()
        self._changed.set()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        for caller in self._there():
            caller.close()

    def _there(self) -> list[_Caller]:
        with self._lock:
            return [*self._callers]

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                sock, _ = self._sock.accept()
            except OSError:
                if not self._closed.wait(LOAD_EVERY_S):  # too many open files, say: they are closed one day
                    continue
                return
            try:
                self._take_in(sock)
            except (OSError, RuntimeError) as error:  # it is gone already, or there is no thread to be had for it
                log.warning("caller_not_taken", reason=str(error))
                sock.close()

    def _take_in(self, sock: socket.socket) -> None:
        if len(self._there()) >= CONNECTIONS:
            log.warning("too_many_connections", most=CONNECTIONS)
            sock.close()
            return
        caller = _Caller(sock, self._door, self._lose, self.secret)
        with self._lock:
            self._callers.add(caller)
        try:
            threading.Thread(target=self._serve, args=(caller,), name="door-caller", daemon=True).start()
        except RuntimeError:
            self._let_go(caller)
            raise

    def _serve(self, caller: _Caller) -> None:
        try:
            if not self._closed.is_set():  # or it came while the others were let go
                caller.serve()
        except Exception:  # the thread's edge: a caller that breaks the rules ends its own connection, no other
            log.exception("caller_failed")
        finally:
            self._let_go(caller)

    def _let_go(self, caller: _Caller) -> None:
        caller.close()
        caller.free()
        with self._lock:
            self._callers.discard(caller)

    def _tell_load(self) -> None:
        while not self._closed.is_set():
            self._changed.wait(LOAD_AT_LEAST_S)
            self._changed.clear()
            frame = wire.load_to_wire(self._door.load())
            for caller in self._there():
                caller.tell(frame)
            self._closed.wait(LOAD_EVERY_S)


class _Caller:
    """One connection. known: it has shown the secret."""

    def __init__(self, sock: socket.socket, door: Door, lose: Callable[[str], None], secret: str) -> None:
        self._sock = sock
        self._lose = lose
        self._door = door
        self._secret = secret.encode()
        self._channel: Channel[_Word] = Channel(sock, _encode, "door-writer")
        self._ids: dict[int, str] = {}
        self._lock = threading.Lock()
        self._known = False
        self._until = math.inf

    def serve(self) -> None:
        self._sock.settimeout(HELLO_S)
        self._until = time.monotonic() + HELLO_S
        for heads in self._heads():
            for head in heads:
                if self._known:
                    self._take(head)
                elif self._may_ask(head):
                    self._known = True
                    self._sock.settimeout(None)
                    self.tell(encode_frame({"op": "hello", "v": wire.VERSION, "name": self._door.name}))
                    self.tell(wire.load_to_wire(self._door.load()))
                else:
                    log.warning("caller_refused")
                    return

    def tell(self, frame: bytes) -> None:
        """Nothing to strangers."""
        if self._known:
            self._channel.put(frame)

    def close(self) -> None:
        """Its requests go with it."""
        self._channel.close()
        with self._lock:
            left, self._ids = [*self._ids.values()], {}
        for request_id in left:
            self._lose(request_id)

    def free(self) -> None:
        """After `close`, by whoever served it."""
        self._channel.free()

    def _heads(self) -> Iterator[list[dict[str, Any]]]:
        try:
            for frames in self._channel.frames(self._most_bytes):
                yield [head for head, _ in frames]
        except ValueError as fault:
            log.warning("caller_unreadable", fault=str(fault))

    def _most_bytes(self) -> int:
        """Of a frame, as bytes come. Raises ValueError to a stranger who takes his time over them: places are few."""
        if self._known:
            return wire.MAX_FRAME_BYTES
        if time.monotonic() > self._until:
            raise ValueError(f"no secret within {HELLO_S:g} s")
        return wire.HELLO_BYTES

    def _may_ask(self, head: Any) -> bool:
        if not isinstance(head, dict):
            return False
        shown = str(head.get("secret", "")).encode("utf-8", "replace")
        return hmac.compare_digest(shown, self._secret) and head.get("v") == wire.VERSION

    def _take(self, head: dict[str, Any]) -> None:
        number = int(head["n"])
        if head["op"] == "leave":
            with self._lock:
                request_id = self._ids.get(number)
            if request_id is not None:
                self._door.leave(request_id)
            return
        request = wire.request_from_wire(head)
        with self._lock:
            fits = len(self._ids) < wire.REQUESTS
            if fits:
                self._ids[number] = request.id
        if fits:
            self._door.enter(request, lambda said: self._hear(number, said))
        else:
            self._hear(number, Ended(end=End.REFUSED, retry_after_s=1.0, reason="too many requests on one connection"))

    def _hear(self, number: int, said: Said) -> None:
        if isinstance(said, Ended):
            with self._lock:
                self._ids.pop(number, None)
            self._channel.hurry((number, said))
        else:  # it shares a frame with those that the same step gave to others
            self._channel.put((number, said))


def _encode(words: list[_Word]) -> bytes:
    """Neighbours that were said of requests share frames."""
    parts: list[bytes] = []
    said: list[tuple[int, Said]] = []
    for word in words:
        if isinstance(word, bytes):
            parts += [wire.said_to_wire(said), word]
            said = []
        else:
            said.append(word)
    return b"".join([*parts, wire.said_to_wire(said)])
