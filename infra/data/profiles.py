"""Request profiles: what the rows of a job have in common for the engine."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from infra.data.bodies import SORTED, Body
from infra.data.endpoints import ENDPOINTS
from jobs.model import Job
from jobs.ports.engine import RequestProfile


def profile_of(job: Job, salt: str, body: Body | None = None) -> RequestProfile:
    """body: what a row's request says itself; it goes before what the job says. The key says all of the content."""
    own: dict[str, Any] = {} if body is None else body.sampling
    schema = job.spec.schema if body is None else body.schema
    kind = ENDPOINTS[job.spec.endpoint].kind if job.spec.endpoint else job.spec.model_kind
    sampling = {**orjson.loads(job.spec.sampling), **own}
    if "max_tokens" in own:
        sampling.pop("max_completion_tokens", None)
    if "max_completion_tokens" in own:
        sampling["max_tokens"] = sampling.pop("max_completion_tokens")
    dimensions = None if body is None else body.dimensions
    more = [] if body is None or body.tools is None else [body.tools, body.tool_choice]
    text = orjson.dumps(sampling, option=SORTED).decode()
    priority = job.priority.rank
    content = orjson.dumps([kind, text, schema, salt, priority, dimensions, *more])
    return RequestProfile(
        key=hashlib.blake2b(content, digest_size=12).hexdigest(),
        kind=kind,
        sampling=text,
        schema=schema,
        cache_salt=salt,
        priority=priority,
        dimensions=dimensions,
        tools=None if body is None else body.tools,
        tool_choice="auto" if body is None else body.tool_choice,
    )
