"""Questions about output schemas, from any thread to an engine that one thread owns."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from infra.engines import wire

Refusal = str | None
"""What guided decoding says against a schema; None if nothing."""


class SchemaAsks:
    """`ask` from any thread; the rest from the engine's own."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._unsent: queue.SimpleQueue[tuple[str, Future[Refusal]]] = queue.SimpleQueue()
        self._sent: dict[int, Future[Refusal]] = {}

    def ask(self, schema: str) -> Future[Refusal]:
        """Answered while the engine is polled; cancelled when it ends before."""
        answer: Future[Refusal] = Future()
        self._unsent.put((schema, answer))
        return answer

    def send(self, send: Callable[[dict[str, Any]], None]) -> None:
        while not self._unsent.empty():
            schema, answer = self._unsent.get()
            number = next(self._numbers)
            self._sent[number] = answer
            send({"op": "schema", "n": number, "schema": wire.without_surrogates(schema)})

    def answered(self, number: int, refusal: Refusal) -> None:
        if (answer := self._sent.pop(number, None)) is not None:
            answer.set_result(refusal)

    def give_up(self) -> None:
        """The engine ended."""
        for answer in self._sent.values():
            answer.cancel()
        self._sent.clear()
