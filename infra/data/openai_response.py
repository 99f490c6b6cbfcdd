"""An answer in the shape of OpenAI's Response object."""

from __future__ import annotations

from typing import Any

from infra.data.answers import Answer
from infra.data.openai_bodies import Entry, Head, Row, call_id, calls_of, entries_of
from jobs.model import Outcome


def response(head: Head, row: Row, answer: Answer) -> dict[str, Any]:
    """One that nothing stores: what it repeats of the request comes with the row."""
    (entry,) = entries_of(row, answer)
    cut = entry["finish_reason"] == "length"
    return {
        "id": f"resp_{_tail(head)}",
        "object": "response",
        "created_at": head.created,
        "status": "incomplete" if cut else "completed",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "model": head.model,
        "output": _items(head, row, answer, entry, "incomplete" if cut else "completed"),
        "previous_response_id": None,
        "truncation": "disabled",
        "usage": {
            "input_tokens": row["input_tokens"],
            "input_tokens_details": {"cached_tokens": row["cached_tokens"], "cache_write_tokens": 0},
            "output_tokens": row["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": row["input_tokens"] + row["output_tokens"],
        },
        **answer.echo,
    }


def _items(head: Head, row: Row, answer: Answer, entry: Entry, status: str) -> list[dict[str, Any]]:
    """What it says, and what it calls."""
    calls = calls_of(entry, answer)
    said = [_message(head, row, entry["text"], status)] if entry["text"] or not calls else []
    return said + [_call(head, number, call, status) for number, call in enumerate(calls)]


def _message(head: Head, row: Row, text: str, status: str) -> dict[str, Any]:
    refused = row["outcome"] == Outcome.REFUSED
    content = (
        {"type": "refusal", "refusal": text}
        if refused
        else {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    )
    return {
        "id": f"msg_{_tail(head)}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [content],
    }


def _call(head: Head, number: int, call: Any, status: str) -> dict[str, Any]:
    name, arguments = call
    return {
        "id": f"fc_{_tail(head)}_{number}",
        "type": "function_call",
        "call_id": call_id(head, 0, number),
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def _tail(head: Head) -> str:
    return head.place.replace("/", "_")
