"""Answers in the shapes of OpenAI's chat completions, completions and embeddings.

Ids are made of the job and the row: the same line has the same ids each time it is written.
"""

from __future__ import annotations

import base64
import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from infra.data.answers import Answer
from jobs.model import Job, Outcome

Row = Mapping[str, Any]
Entry = Mapping[str, Any]


def asked(job: Job) -> str:
    """The model as the lines named it, an alias perhaps."""
    return job.spec.asked_model or job.spec.model


def call_id(job: Job, row: Row, choice: int, number: int) -> str:
    """Of a call of a tool."""
    place = f"{job.id}/{row['row']}/{choice}/{number}"
    return f"call_{hashlib.blake2b(place.encode(), digest_size=12).hexdigest()}"


def entries_of(row: Row, answer: Answer) -> Sequence[Entry]:
    """All generated answers of a row; of most there is one, in its columns."""
    return answer.choices or [{"text": row["output"], "finish_reason": row["finish_reason"]}]


def calls_of(entry: Entry, answer: Answer) -> Sequence[Sequence[str]]:
    """(name, arguments) of the tools that an answer calls; one at most where the request wants no more."""
    calls: Sequence[Sequence[str]] = entry.get("calls", ())
    return calls[:1] if answer.echo.get("parallel_tool_calls") is False else calls


def _usage(row: Row) -> dict[str, Any]:
    return {
        "prompt_tokens": row["input_tokens"],
        "completion_tokens": row["output_tokens"],
        "total_tokens": row["input_tokens"] + row["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": row["cached_tokens"]},
    }


# ---- chat ---------------------------------------------------------------------------------------


def chat(job: Job, row: Row, answer: Answer, created: int) -> dict[str, Any]:
    """A chat completion."""
    return {
        "id": f"chatcmpl-{job.id}-{row['row']}",
        "object": "chat.completion",
        "created": created,
        "model": asked(job),
        "choices": [_choice(job, row, answer, index) for index in range(len(entries_of(row, answer)))],
        "usage": _usage(row),
    }


def _choice(job: Job, row: Row, answer: Answer, index: int) -> dict[str, Any]:
    entry = entries_of(row, answer)[index]
    refused, text = row["outcome"] == Outcome.REFUSED, entry["text"]
    message = {"role": "assistant", "content": None if refused else text, "refusal": text if refused else None}
    calls = [
        {"id": call_id(job, row, index, number), "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls_of(entry, answer))
    ]
    if calls:
        message["tool_calls"] = calls
    reason = entry["finish_reason"]
    return {
        "index": index,
        "message": message,
        "logprobs": _chat_logprobs(entry),
        "finish_reason": "tool_calls" if calls and reason == "stop" else reason,
    }


def _chat_logprobs(entry: Entry) -> dict[str, Any] | None:
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


def completion(job: Job, row: Row, answer: Answer, created: int) -> dict[str, Any]:
    """A text completion."""
    choices = [
        {
            "index": index,
            "text": entry["text"],
            "logprobs": _text_logprobs(entry),
            "finish_reason": entry["finish_reason"],
        }
        for index, entry in enumerate(entries_of(row, answer))
    ]
    return {
        "id": f"cmpl-{job.id}-{row['row']}",
        "object": "text_completion",
        "created": created,
        "model": asked(job),
        "choices": choices,
        "usage": _usage(row),
    }


def _text_logprobs(entry: Entry) -> dict[str, Any] | None:
    """Offsets count characters of the completion."""
    if "tokens" not in entry:
        return None
    offsets, at = [], 0
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


def embedding(job: Job, row: Row, answer: Answer, _created: int) -> dict[str, Any]:
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
        "model": asked(job),
        "usage": {"prompt_tokens": row["input_tokens"], "total_tokens": row["input_tokens"]},
    }


def _packed(vector: Sequence[float]) -> str:
    return base64.b64encode(array("f", vector).tobytes()).decode()
