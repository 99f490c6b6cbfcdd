"""Answers in the shapes of OpenAI's chat completions, completions and embeddings: of a batch's line and of a request
that somebody waits for.
"""

from __future__ import annotations

import base64
import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from infra.data.answers import Answer
from jobs.model import Outcome

Row = Mapping[str, Any]
Entry = Mapping[str, Any]


class Head(NamedTuple):
    """How an answer is called. place: unique for ever, what the ids inside it are made of: the same answer has the same
    ids each time it is written. model: as the request named it, an alias perhaps. created: seconds since the epoch.
    """

    id: str
    place: str
    model: str
    created: int


def call_id(head: Head, choice: int, number: int) -> str:
    """Of a call of a tool."""
    place = f"{head.place}/{choice}/{number}"
    return f"call_{hashlib.blake2b(place.encode(), digest_size=12).hexdigest()}"


def entries_of(row: Row, answer: Answer) -> Sequence[Entry]:
    """All generated answers of a row; of most there is one, in its columns."""
    return answer.choices or [{"text": row["output"], "finish_reason": row["finish_reason"]}]


def calls_of(entry: Entry, answer: Answer) -> Sequence[Sequence[str]]:
    """(name, arguments) of the tools that an answer calls; one at most where the request wants no more."""
    calls: Sequence[Sequence[str]] = entry.get("calls", ())
    return calls[:1] if answer.echo.get("parallel_tool_calls") is False else calls


def usage_of(row: Row) -> dict[str, Any]:
    """As OpenAI counts: cached tokens are among the prompt's."""
    return {
        "prompt_tokens": row["input_tokens"],
        "completion_tokens": row["output_tokens"],
        "total_tokens": row["input_tokens"] + row["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": row["cached_tokens"]},
    }


# ---- chat ---------------------------------------------------------------------------------------


def chat(head: Head, row: Row, answer: Answer) -> dict[str, Any]:
    """A chat completion."""
    return {
        "id": f"chatcmpl-{head.id}",
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [_choice(head, row, answer, index) for index in range(len(entries_of(row, answer)))],
        "usage": usage_of(row),
    }


def _choice(head: Head, row: Row, answer: Answer, index: int) -> dict[str, Any]:
    entry = entries_of(row, answer)[index]
    refused, text = row["outcome"] == Outcome.REFUSED, entry["text"]
    message = {"role": "assistant", "content": None if refused else text, "refusal": text if refused else None}
    calls = tool_calls(head, entry, answer, index)
    if calls:
        message["tool_calls"] = calls
    return {
        "index": index,
        "message": message,
        "logprobs": chat_logprobs(entry),
        "finish_reason": chat_reason(entry, calls),
    }


def tool_calls(head: Head, entry: Entry, answer: Answer, index: int) -> list[dict[str, Any]]:
    """The calls of an answer, which is the choice of this index."""
    return [
        {"id": call_id(head, index, number), "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls_of(entry, answer))
    ]


def chat_reason(entry: Entry, calls: Sequence[Any]) -> str:
    """Why an answer ended."""
    reason: str = entry["finish_reason"]
    return "tool_calls" if calls and reason == "stop" else reason


def chat_logprobs(entry: Entry) -> dict[str, Any] | None:
    """Of the places of an answer, or of a piece of it."""
    if "tokens" not in entry:
        return None
    content = [
        {**_token(token, logprob), "top_logprobs": [_token(*other) for other in others]}
        for token, logprob, others in entry["tokens"]
    ]
    return {"content": content, "refusal": None}


def _token(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


# ---- completions --------------------------------------------------------------------------------


def completion(head: Head, row: Row, answer: Answer) -> dict[str, Any]:
    """A text completion."""
    choices = [
        {
            "index": index,
            "text": entry["text"],
            "logprobs": text_logprobs(entry),
            "finish_reason": entry["finish_reason"],
        }
        for index, entry in enumerate(entries_of(row, answer))
    ]
    return {
        "id": f"cmpl-{head.id}",
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": usage_of(row),
    }


def text_logprobs(entry: Entry, at: int = 0) -> dict[str, Any] | None:
    """Offsets count characters of the completion; at: where this piece of it begins."""
    if "tokens" not in entry:
        return None
    offsets = []
    for token, _, _ in entry["tokens"]:
        offsets.append(at)
        at += len(token)
    return {
        "tokens": [token for token, _, _ in entry["tokens"]],
        "token_logprobs": [logprob for _, logprob, _ in entry["tokens"]],
        "top_logprobs": [{**dict(others), token: logprob} for token, logprob, others in entry["tokens"]],
        "text_offset": offsets,
    }


# ---- embeddings ---------------------------------------------------------------------------------


def embedding(head: Head, row: Row, answer: Answer) -> dict[str, Any]:
    """A list of embeddings."""
    as_text = answer.echo.get("encoding_format") == "base64"
    vectors: list[Any] = list(answer.embeddings)
    if not vectors:
        vectors = [_packed(row["output"]) if as_text else row["output"]]
    elif not as_text:
        vectors = [array("f", base64.b64decode(vector)).tolist() for vector in vectors]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)],
        "model": head.model,
        "usage": {"prompt_tokens": row["input_tokens"], "total_tokens": row["input_tokens"]},
    }


def _packed(vector: Sequence[float]) -> str:
    return base64.b64encode(array("f", vector).tobytes()).decode()
