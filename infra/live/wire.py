"""Requests, and what is said of them, as frames. Many of one kind share a frame; a request has a number of its own on
each connection.

    client → server  {"op": "hello", "v": 1, "secret": …}   first of all
                     {"op": "enter", "n": 7, "request": …}
                     {"op": "leave", "n": 7}
    server → client  {"op": "hello", "v": 1, "name": …}
                     {"op": "load", "load": …}
                     {"op": "pieces", "n": […], "c": […], "t": […], "o": […], "k": {place: tokens}}
                     {"op": "ended", "n": 7, …}              an embedding lies in the tail
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from infra.engines.frames import Frame, encode_frame
from infra.engines.wire import prompt_from_wire
from jobs.model import Price, Usage
from jobs.ports.engine import EngineResult, RequestProfile
from jobs.requests import End, Ended, LiveRequest, Load, Piece, Said

VERSION = 1
HELLO_BYTES = 4096
"""Of the first frame, before anybody has shown that he may ask."""
MAX_FRAME_BYTES = 1 << 28
"""2,048 embeddings of 8,192 dimensions, in base64, come to 90 MB."""
REQUESTS = 4096
"""Of one connection at a time."""


def hello_to_wire(secret: str) -> bytes:
    """How a client begins."""
    return encode_frame({"op": "hello", "v": VERSION, "secret": secret})


def enter_to_wire(number: int, request: LiveRequest) -> bytes:
    """Raises orjson.JSONEncodeError for text that is not valid Unicode."""
    return encode_frame({"op": "enter", "n": number, "request": request})


def request_from_wire(head: dict[str, Any]) -> LiveRequest:
    """The inverse of `enter_to_wire`. Raises TypeError or KeyError for what is none."""
    body = head["request"]
    return LiveRequest(
        **{
            **body,
            "price": Price(**body["price"]),
            "profile": RequestProfile(**body["profile"]),
            "prompt": prompt_from_wire(body["prompt"]),
        }
    )


def load_to_wire(load: Load) -> bytes:
    """What the server tells on its own."""
    return encode_frame({"op": "load", "load": load})


def load_from_wire(head: dict[str, Any]) -> Load:
    """The inverse of `load_to_wire`."""
    return Load(**head["load"])


def said_to_wire(said: Sequence[tuple[int, Said]]) -> bytes:
    """(request's number, what is said of it), in order: neighbouring pieces share a frame."""
    frames: list[bytes] = []
    pieces: list[tuple[int, Piece]] = []
    for number, word in said:
        if isinstance(word, Piece):
            pieces.append((number, word))
            continue
        if pieces:
            frames.append(_pieces(pieces))
            pieces = []
        frames.append(_ended(number, word))
    if pieces:
        frames.append(_pieces(pieces))
    return b"".join(frames)


def said_from_wire(frame: Frame) -> list[tuple[int, Said]]:
    """The inverse, of one frame."""
    head, tail = frame
    if head["op"] == "ended":
        return [(head["n"], _ended_from(head, tail))]
    tokens = head.get("k", {})
    columns = zip(head["n"], head["c"], head["t"], head["o"], strict=True)
    return [
        (number, Piece(choice, text, output_tokens, tokens.get(str(place)) if tokens else None))
        for place, (number, choice, text, output_tokens) in enumerate(columns)
    ]


def _pieces(pieces: Sequence[tuple[int, Piece]]) -> bytes:
    head: dict[str, Any] = {
        "op": "pieces",
        "n": [number for number, _ in pieces],
        "c": [piece.choice for _, piece in pieces],
        "t": [piece.text for _, piece in pieces],
        "o": [piece.output_tokens for _, piece in pieces],
    }
    tokens = {str(place): piece.tokens for place, (_, piece) in enumerate(pieces) if piece.tokens is not None}
    if tokens:
        head["k"] = tokens
    return encode_frame(head)


_RESULT = [field.name for field in fields(EngineResult) if field.name != "embedding"]


def _ended(number: int, ended: Ended) -> bytes:
    head: dict[str, Any] = {
        "op": "ended",
        "n": number,
        "end": ended.end,
        "usage": ended.usage,
        "retry": ended.retry_after_s,
        "reason": ended.reason,
    }
    tail = b""
    if ended.result is not None:
        head["result"] = {name: getattr(ended.result, name) for name in _RESULT}
        if ended.result.embedding is not None:
            tail = array("f", ended.result.embedding).tobytes()
            head["embedding"] = True
    return encode_frame(head, tail)


def _ended_from(head: dict[str, Any], tail: bytes) -> Ended:
    result = None
    if "result" in head:
        result = EngineResult(**head["result"], embedding=array("f", tail) if head.get("embedding") else None)
    return Ended(
        end=End(head["end"]),
        result=result,
        usage=Usage(**head["usage"]),
        retry_after_s=head["retry"],
        reason=head["reason"],
    )
