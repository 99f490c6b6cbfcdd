"""A result row as a line of OpenAI's batch output or error file."""

from __future__ import annotations

from typing import Any

import orjson

from infra.data.answers import read_answer
from infra.data.line_fields import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from infra.data.openai_bodies import Head, Row, chat, completion, embedding
from infra.data.openai_response import response
from infra.data.schema import ANSWER
from jobs.model import Job, Outcome

_ENDED = {
    Outcome.CANCELLED: ("batch_cancelled", "This request was not executed because the batch was cancelled."),
    Outcome.EXPIRED: ("batch_expired", "This request could not be executed before the completion window expired."),
}


def line_of(job: Job, row: Row, created: int) -> bytes:
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


def _error(row: Row) -> dict[str, Any]:
    code, message = _ENDED.get(row["outcome"], (row["error_code"] or "error", row["error_message"] or ""))
    return {"code": code, "message": message}


def _response(job: Job, row: Row, created: int) -> dict[str, Any]:
    request = f"req_{job.id}_{row['row']}"
    body = _BODIES[job.spec.endpoint or job.spec.model_kind]
    head = Head(
        id=f"{job.id}-{row['row']}",
        place=f"{job.id}/{row['row']}",
        model=job.spec.asked_model or job.spec.model,
        created=created,
    )
    return {
        "status_code": 200,
        "request_id": request,
        "body": body(head, row, read_answer(row.get(ANSWER))),
    }


_BODIES = {
    CHAT: chat,
    COMPLETIONS: completion,
    EMBEDDINGS: embedding,
    RESPONSES: response,
    "chat": chat,
    "completion": completion,
    "embedding": embedding,
}
"""By endpoint, and by kind of model for rows that came from elsewhere."""
