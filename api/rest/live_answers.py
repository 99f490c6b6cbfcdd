"""What the routes of interactive requests document: their bodies, streams and errors."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel

from api.rest.answers import REF, Answers, posted
from api.rest.live_schemas import REQUESTS

_CHUNK = {"id": "chatcmpl-06cdkpbm5y3xb28v4r7t9w1z0q", "created": 1_790_000_000, "model": "smollm2"}
_RATES = {
    name: {"schema": {"type": "string"}, "description": "Where there is a limit: as OpenAI's clients know it."}
    for name in (
        f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")
    )
}


def takes(body: type[BaseModel]) -> dict[str, Any]:
    """A route that reads its body itself."""
    schema = {"$ref": REF.format(model=body.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def generated(kind: str) -> Answers:
    """Of text. kind: of a stream's chunks."""
    piece = {"index": 0, "delta": {"content": " Nile"}, "logprobs": None, "finish_reason": None}
    if kind == "text_completion":
        piece = {"index": 0, "text": " Nile", "logprobs": None, "finish_reason": None}
    event = orjson.dumps({**_CHUNK, "object": kind, "choices": [piece]}).decode()
    stream = {"schema": {"type": "string"}, "example": f"data: {event}\n\ndata: [DONE]\n\n"}
    return computed({"text/event-stream": stream})


def computed(more: dict[str, Any] | None = None) -> Answers:
    """more: content beside JSON."""
    answer = {"description": "The answer.", "headers": _RATES, **({"content": more} if more else {})}
    return posted(404, 429) | {200: answer}


def add_bodies(schemas: dict[str, Any]) -> None:
    """Bodies of requests into the document: FastAPI knows of none that a route reads itself."""
    for model in REQUESTS:
        found = model.model_json_schema(ref_template=REF)
        schemas.update(found.pop("$defs", {}), **{model.__name__: found})
