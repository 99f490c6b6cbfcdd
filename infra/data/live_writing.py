"""Answers to interactive requests: whole, or in the chunks of OpenAI's streams; by what writes the lines of a batch.

A function's call is told whole at the end of a stream, in one chunk: before that nobody knows that it is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from infra.data.answers import Answer, answer_of, read_answer
from infra.data.line_fields import CHAT, COMPLETIONS, EMBEDDINGS
from infra.data.openai_bodies import (
    Entry,
    Head,
    Row,
    chat,
    chat_logprobs,
    chat_reason,
    completion,
    embedding,
    entries_of,
    text_logprobs,
    tool_calls,
    usage_of,
)
from jobs.model import Outcome
from jobs.ports.engine import EngineResult
from jobs.requests import Piece

_WHOLE: Mapping[str, Callable[[Head, Row, Answer], dict[str, Any]]] = {
    CHAT: chat,
    COMPLETIONS: completion,
    EMBEDDINGS: embedding,
}
_DONE = b"data: [DONE]\n\n"
Chunk = dict[str, Any]


class WholeWriter:
    """Writes answers that are no streams. echo: as in `Body`."""

    def __init__(self, head: Head, endpoint: str, echo: Mapping[str, Any] | None) -> None:
        self._head = head
        self._endpoint = endpoint
        self._echo = echo

    def whole(self, result: EngineResult) -> bytes:
        row, answer = self._read(result)
        found = _WHOLE[self._endpoint](self._head, row, answer)
        if self._endpoint == EMBEDDINGS:  # one by one: the 40 MB of 2,048 vectors at once stop all threads for 0.4 s
            for entry in found["data"]:
                entry["embedding"] = orjson.Fragment(orjson.dumps(entry["embedding"]))
        return orjson.dumps(found)

    def _read(self, result: EngineResult) -> tuple[Row, Answer]:
        """As a result table would have it."""
        embeds = self._endpoint == EMBEDDINGS
        row = {
            "output": array("f", result.embedding or ()).tolist() if embeds else result.text,
            "outcome": Outcome.TRUNCATED if result.finish_reason == "length" else Outcome.OK,
            "finish_reason": result.finish_reason,
            "input_tokens": result.input_tokens,
            "cached_tokens": result.cached_tokens,
            "output_tokens": result.output_tokens,
        }
        return row, read_answer(answer_of(result, self._echo, embeds=embeds))

    def begin(self) -> bytes:
        return b""

    def more(self, pieces: Sequence[Piece]) -> bytes:  # noqa: ARG002 - the port's
        return b""

    def end(self, result: EngineResult) -> bytes:
        return self.whole(result)


class _StreamWriter(WholeWriter, ABC):
    """choices: how many answers there will be. usage: whether a chunk with the usage is wanted at the end."""

    def __init__(
        self, head: Head, endpoint: str, echo: Mapping[str, Any] | None, *, choices: int, usage: bool, object_: str
    ) -> None:
        super().__init__(head, endpoint, echo)
        self._choices = choices
        self._usage = usage
        prefix = "chatcmpl" if endpoint == CHAT else "cmpl"
        self._frame: Chunk = {
            "id": f"{prefix}-{head.id}",
            "object": object_,
            "created": head.created,
            "model": head.model,
        }
        self._said = [0] * choices
        """Characters of each answer so far."""

    def more(self, pieces: Sequence[Piece]) -> bytes:
        return b"".join([self._event([self._piece(piece)]) for piece in _joined(pieces) if piece.text or piece.tokens])

    def _piece(self, piece: Piece) -> Chunk:
        said = self._said[piece.choice]
        self._said[piece.choice] += len(piece.text)
        places = {} if piece.tokens is None else {"tokens": piece.tokens}
        return self._choice(piece.choice, piece.text, places, said)

    @abstractmethod
    def _choice(self, index: int, text: str, places: Entry, said: int) -> Chunk:
        """A stretch of an answer. said: characters of it before this one."""

    @abstractmethod
    def _ended(self, index: int, entry: Entry, answer: Answer) -> Iterator[Chunk]:
        """What is left to say of an answer, and why it ended."""

    def end(self, result: EngineResult) -> bytes:
        row, answer = self._read(result)
        events = [
            self._event([choice])
            for index, entry in enumerate(entries_of(row, answer))
            for choice in self._ended(index, entry, answer)
        ]
        if self._usage:
            events.append(self._event([], usage_of(row)))
        return b"".join([*events, _DONE])

    def _event(self, choices: list[Chunk], usage: dict[str, Any] | None = None) -> bytes:
        more = {"usage": usage} if self._usage else {}
        return b"data: %b\n\n" % orjson.dumps({**self._frame, "choices": choices, **more})

    def _unsaid(self, index: int, entry: Entry) -> str:
        """Of an answer of which no piece was told. Where there were some, they have all of it."""
        return "" if self._said[index] else entry["text"] or ""


class ChatStreamWriter(_StreamWriter):
    """`chat.completion.chunk`s."""

    def __init__(self, head: Head, endpoint: str, echo: Mapping[str, Any] | None, *, choices: int, usage: bool) -> None:
        super().__init__(head, endpoint, echo, choices=choices, usage=usage, object_="chat.completion.chunk")

    def begin(self) -> bytes:
        first = {"role": "assistant", "content": "", "refusal": None}
        return b"".join([self._event([_chat_choice(index, first)]) for index in range(self._choices)])

    def _choice(self, index: int, text: str, places: Entry, said: int) -> Chunk:  # noqa: ARG002 - as the base's
        return _chat_choice(index, {"content": text}, chat_logprobs(places))

    def _ended(self, index: int, entry: Entry, answer: Answer) -> Iterator[Chunk]:
        if text := self._unsaid(index, entry):
            yield self._choice(index, text, entry, 0)
        calls = tool_calls(self._head, entry, answer, index)
        if calls:
            numbered = [{"index": number, **call} for number, call in enumerate(calls)]
            yield _chat_choice(index, {"tool_calls": numbered})
        yield _chat_choice(index, {}, reason=chat_reason(entry, calls))


def _chat_choice(index: int, delta: Chunk, logprobs: Chunk | None = None, reason: str | None = None) -> Chunk:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


class TextStreamWriter(_StreamWriter):
    """Chunks of a text completion."""

    def __init__(self, head: Head, endpoint: str, echo: Mapping[str, Any] | None, *, choices: int, usage: bool) -> None:
        super().__init__(head, endpoint, echo, choices=choices, usage=usage, object_="text_completion")

    def _choice(self, index: int, text: str, places: Entry, said: int) -> Chunk:
        return {"index": index, "text": text, "logprobs": text_logprobs(places, said), "finish_reason": None}

    def _ended(self, index: int, entry: Entry, answer: Answer) -> Iterator[Chunk]:  # noqa: ARG002 - as the base's
        if text := self._unsaid(index, entry):
            yield self._choice(index, text, entry, 0)
        yield {"index": index, "text": "", "logprobs": None, "finish_reason": entry["finish_reason"]}


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours of one answer as one."""
    out: list[Piece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if last is None or last.choice != piece.choice:
            out.append(piece)
            continue
        tokens = None if piece.tokens is None else [*(last.tokens or ()), *piece.tokens]
        out[-1] = Piece(piece.choice, last.text + piece.text, last.output_tokens + piece.output_tokens, tokens)
    return out
