"""Request profiles: what the rows of a job have in common for the engine."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from infra.data.bodies import SORTED
from jobs.model import Job
from jobs.ports.engine import RequestProfile


def profile_of(job: Job, salt: str, own: dict[str, Any], schema: str | None) -> RequestProfile:
    """own: what a row's request says itself; it goes before what the job says. The key says all of the content."""
    sampling = {**orjson.loads(job.spec.sampling), **own}
    if "max_tokens" in own:
        sampling.pop("max_completion_tokens", None)
    if "max_completion_tokens" in own:
        sampling["max_tokens"] = sampling.pop("max_completion_tokens")
    dimensions = sampling.pop("dimensions", None)
    text = orjson.dumps(sampling, option=SORTED).decode()
    priority = job.priority.rank
    content = orjson.dumps([job.spec.model_kind, text, schema, salt, priority, dimensions])
    return RequestProfile(
        key=hashlib.blake2b(content, digest_size=12).hexdigest(),
        kind=job.spec.model_kind,
        sampling=text,
        schema=schema,
        cache_salt=salt,
        priority=priority,
        dimensions=dimensions,
    )
