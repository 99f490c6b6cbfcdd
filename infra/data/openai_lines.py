"""A result row as a line of OpenAI's batch output or error file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from jobs.model import Job, Outcome

_ENDED = {
    Outcome.CANCELLED: ("batch_cancelled", "This request was not executed because the batch was cancelled."),
    Outcome.EXPIRED: ("batch_expired", "This request could not be executed before the completion window expired."),
}


def line_of(job: Job, row: Mapping[str, Any], created: int) -> bytes:
    """One line with its newline. A row whose output breaks its schema has both the response and the error."""
    failed = row["outcome"] not in {Outcome.OK, Outcome.TRUNCATED, Outcome.REFUSED}
    answered = row["output"] is not None
    line = {
        "id": f"batch_req_{job.id}_{row['row']}",
        "custom_id": row["custom_id"],
        "response": _response(job, row, created) if answered or not failed else None,
        "error": _error(row) if failed else None,
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _error(row: Mapping[str, Any]) -> dict[str, Any]:
    code, message = _ENDED.get(row["outcome"], (row["error_code"] or "error", row["error_message"] or ""))
    return {"code": code, "message": message}


def _response(job: Job, row: Mapping[str, Any], created: int) -> dict[str, Any]:
    request = f"req_{job.id}_{row['row']}"
    return {"status_code": 200, "request_id": request, "body": _BODIES[job.spec.model_kind](job, row, created)}


def _usage(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "prompt_tokens": row["input_tokens"],
        "completion_tokens": row["output_tokens"],
        "total_tokens": row["input_tokens"] + row["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": row["cached_tokens"]},
    }


def _chat(job: Job, row: Mapping[str, Any], created: int) -> dict[str, Any]:
    refused = row["outcome"] == Outcome.REFUSED
    text = row["output"]
    message = {"role": "assistant", "content": None if refused else text, "refusal": text if refused else None}
    return {
        "id": f"chatcmpl-{job.id}-{row['row']}",
        "object": "chat.completion",
        "created": created,
        "model": job.spec.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": row["finish_reason"]}],
        "usage": _usage(row),
    }


def _completion(job: Job, row: Mapping[str, Any], created: int) -> dict[str, Any]:
    return {
        "id": f"cmpl-{job.id}-{row['row']}",
        "object": "text_completion",
        "created": created,
        "model": job.spec.model,
        "choices": [{"index": 0, "text": row["output"], "logprobs": None, "finish_reason": row["finish_reason"]}],
        "usage": _usage(row),
    }


def _embedding(job: Job, row: Mapping[str, Any], _created: int) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": row["output"]}],
        "model": job.spec.model,
        "usage": {"prompt_tokens": row["input_tokens"], "total_tokens": row["input_tokens"]},
    }


_BODIES = {"chat": _chat, "completion": _completion, "embedding": _embedding}
