"""Request profiles: what the rows of a job have in common for the engine; and those of single requests."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from infra.data.bodies import SORTED, Body
from infra.data.endpoints import ENDPOINTS
from jobs.model import Job
from jobs.ports.engine import ModelKind, RequestProfile
from jobs.requests import URGENT


def profile_of(job: Job, salt: str, body: Body | None = None) -> RequestProfile:
    """body: what a row's request says itself; it goes before what the job says. The key says all of the content."""
    kind = ENDPOINTS[job.spec.endpoint].kind if job.spec.endpoint else job.spec.model_kind
    given: dict[str, Any] = orjson.loads(job.spec.sampling)
    if body is None:
        body = Body(prompt="", schema=job.spec.schema)
    return _profile(kind, given, body, salt, job.priority.rank)


def live_profile(endpoint: str, salt: str, body: Body, *, stream: bool) -> RequestProfile:
    """Of a request that somebody waits for: as for the same request in a batch, and before all of them."""
    return _profile(ENDPOINTS[endpoint].kind, {}, body, salt, URGENT, stream=stream)


def _profile(
    kind: ModelKind, given: dict[str, Any], body: Body, salt: str, priority: int, *, stream: bool = False
) -> RequestProfile:
    """given: sampling beside what the body says itself."""
    own = body.sampling
    sampling = {**given, **own}
    if "max_tokens" in own:
        sampling.pop("max_completion_tokens", None)
    if "max_completion_tokens" in own:
        sampling["max_tokens"] = sampling.pop("max_completion_tokens")
    more: list[Any] = [] if body.tools is None else [body.tools, body.tool_choice]
    more += ["stream"] if stream else []
    text = orjson.dumps(sampling, option=SORTED).decode()
    content = orjson.dumps([kind, text, body.schema, salt, priority, body.dimensions, *more])
    return RequestProfile(
        key=hashlib.blake2b(content, digest_size=12).hexdigest(),
        kind=kind,
        sampling=text,
        schema=body.schema,
        cache_salt=salt,
        priority=priority,
        dimensions=body.dimensions,
        tools=body.tools,
        tool_choice=body.tool_choice,
        stream=stream,
    )
