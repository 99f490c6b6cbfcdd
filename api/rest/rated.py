"""What a caller may still ask for, in the six headers that OpenAI's clients know."""

from __future__ import annotations

import math

from jobs.ports.limiting import Standing


def rate_headers(standing: Standing | None) -> dict[str, str]:
    """`x-ratelimit-*`; nothing of what has no limit."""
    if standing is None:
        return {}
    found: dict[str, str] = {}
    for what, limit, remaining, reset_s in (
        ("requests", standing.limit_requests, standing.remaining_requests, standing.reset_requests_s),
        ("tokens", standing.limit_tokens, standing.remaining_tokens, standing.reset_tokens_s),
    ):
        if limit is not None:
            found[f"x-ratelimit-limit-{what}"] = str(limit)
            found[f"x-ratelimit-remaining-{what}"] = str(max(0, remaining or 0))
            found[f"x-ratelimit-reset-{what}"] = duration(reset_s or 0.0)
    return found


def retry_headers(seconds: float) -> dict[str, str]:
    """When to ask again: in whole seconds, as HTTP has it, and as exactly as OpenAI's clients read it."""
    return {"retry-after": str(max(1, math.ceil(seconds))), "retry-after-ms": str(max(1, math.ceil(seconds * 1000)))}


def duration(seconds: float) -> str:
    """As OpenAI writes it: 12ms, 4s, 6m0s, 1h0m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    whole = math.ceil(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{text}{whole % 60}s"
