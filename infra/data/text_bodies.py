"""The bodies of lines for /v1/completions and /v1/embeddings."""

from __future__ import annotations

from typing import Any

from infra.data.bodies import MAX_ANSWERS, Body, Rules, bad, check_sampling, given, read_format, read_inputs, whole
from infra.data.line_fields import CARRIED, COMPLETIONS
from infra.engines.sampling import NAMES
from jobs.prompts import inputs_of

MAX_INPUTS = 2048
"""Of one embedding line, as at OpenAI."""
_SAMPLING = CARRIED[COMPLETIONS] & NAMES


def read_completion(body: dict[str, Any], _rules: Rules) -> Body:
    """Raises BadBody."""
    sampling = given(body, _SAMPLING & body.keys())
    if sampling:
        check_sampling(sampling)
    prompt = read_inputs(body.get("prompt"), "prompt", MAX_ANSWERS)
    answers = len(inputs_of(prompt)) * sampling.get("n", 1)
    if answers > MAX_ANSWERS:
        raise bad(f"`prompt` times `n` comes to {answers} answers; at most {MAX_ANSWERS} are made", "n")
    return Body(prompt=prompt, sampling=sampling, schema=read_format(body.get("response_format")))


def read_embedding(body: dict[str, Any], rules: Rules) -> Body:
    """Raises BadBody."""
    dimensions = whole(body, "dimensions", 1, 1 << 20)
    if dimensions is not None and rules.sizes is not None and dimensions not in rules.sizes:
        sizes = ", ".join(map(str, rules.sizes))
        raise bad(f"`dimensions` is {dimensions}, but this model's vectors have {sizes}", "dimensions")
    encoding = body.get("encoding_format")
    if encoding not in (None, "float", "base64"):
        raise bad(f"`encoding_format` must be float or base64, not {encoding!r}", "encoding_format")
    return Body(
        prompt=read_inputs(body.get("input"), "input", MAX_INPUTS),
        dimensions=dimensions,
        echo={"encoding_format": "base64"} if encoding == "base64" else None,
    )
