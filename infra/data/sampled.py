"""Prompts of some rows of a request that is not submitted yet, as the job would render them."""

from __future__ import annotations

from typing import Any

import orjson

from infra.data.bodies import BadBody, Body, Rules
from infra.data.endpoints import read_body
from infra.data.frozen import FrozenJob, max_tokens
from infra.data.read import Rows
from infra.data.vary import vary_columns
from jobs.ports.engine import Prompt
from jobs.ports.intake import SampledPrompts
from jobs.prompts import inputs_of, messages_of, plain_text

_NO_LIMIT = -1


def sampled_prompts(frozen: FrozenJob, found: Rows) -> SampledPrompts:
    """In the order in which they would be fed."""
    prompts, limits = _prompts(frozen, found)
    numbers = found.rows.to_pylist()
    good = [(p, n, m) for p, n, m in zip(prompts, numbers, limits, strict=True) if p is not None]
    if frozen.template is None or not frozen.job.spec.vary:
        good.sort(key=lambda row: (messages_of(row[0]), plain_text(row[0]), row[1]))
    return SampledPrompts(
        rows=[number for _, number, _ in good],
        prompts=[prompt for prompt, _, _ in good],
        max_tokens=[None if limit == _NO_LIMIT else limit for _, _, limit in good],
        faults=len(prompts) - len(good),
    )


def _prompts(frozen: FrozenJob, rows: Rows) -> tuple[list[Prompt | None], list[int]]:
    """Prompts, and the output limit of each row (`_NO_LIMIT` for none)."""
    own = max_tokens(frozen.job.spec.sampling, _NO_LIMIT)
    if frozen.template is not None:
        columns = {**rows.columns, **vary_columns(frozen.job.spec, rows.rows)}
        prompts, _ = frozen.template.render(columns, rows.size, rows.faults)
        return prompts, [own] * rows.size
    out: list[Prompt | None] = []
    limits: list[int] = []
    rules = Rules(endpoint=frozen.job.spec.endpoint)
    for text in rows.columns["body"].to_pylist():
        try:
            body = read_body(orjson.loads(text), rules)
        except (BadBody, orjson.JSONDecodeError, TypeError):
            out.append(None)
            limits.append(own)
            continue
        out.append(_shown(body))
        limits.append(_limit_of(body, own))
    return out, limits


def _shown(body: Body) -> Prompt:
    """Tools are text before the messages, about as long as the chat template will make them."""
    messages = messages_of(body.prompt)
    return (("system", body.tools), *messages) if body.tools is not None and messages else body.prompt


def _limit_of(body: Body, default: int) -> int:
    """Of all answers of a row together."""
    found: Any = body.sampling.get("max_completion_tokens") or body.sampling.get("max_tokens")
    answers = len(inputs_of(body.prompt)) * int(body.sampling.get("n", 1))
    limit = found if isinstance(found, int) else default
    return limit if limit == _NO_LIMIT else limit * answers
