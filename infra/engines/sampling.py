"""Sampling parameters by the names that OpenAI and vLLM give them: which are known, and a first check of values.

Both backends use it, so that a parameter is refused the same way by the fake engine and by the real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import orjson

KNOWN = frozenset(
    {
        "bad_words",
        "chat_template_kwargs",
        "frequency_penalty",
        "ignore_eos",
        "include_stop_str_in_output",
        "logit_bias",
        "max_completion_tokens",
        "max_tokens",
        "min_p",
        "min_tokens",
        "n",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop",
        "stop_token_ids",
        "temperature",
        "top_k",
        "top_p",
    }
)
_RANGES: Mapping[str, tuple[float, float]] = {
    "frequency_penalty": (-2, 2),
    "max_tokens": (1, float("inf")),
    "min_p": (0, 1),
    "min_tokens": (0, float("inf")),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (1e-9, float("inf")),
    "temperature": (0, float("inf")),
    "top_k": (-1, float("inf")),
    "top_p": (1e-9, 1),
}
_WHOLE = frozenset({"max_tokens", "min_tokens", "top_k", "seed", "n"})


class BadSampling(Exception):
    """A sampling parameter is unknown or has a value that cannot be; the message names it."""


def read_sampling(text: str) -> dict[str, Any]:
    """The parameters of a profile, checked, with `max_completion_tokens` folded into `max_tokens`.

    A null value means "not given", as it does for OpenAI. Raises BadSampling.
    """
    given = orjson.loads(text)
    if not isinstance(given, dict):
        msg = "the sampling parameters are not an object"
        raise BadSampling(msg)
    for name in given:
        if name not in KNOWN:
            near = get_close_matches(name, KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            msg = f"unknown sampling parameter {name}{hint}"
            raise BadSampling(msg)
    params = {name: value for name, value in given.items() if value is not None}
    if "max_completion_tokens" in params:
        params["max_tokens"] = params.pop("max_completion_tokens")
    for name, value in params.items():
        _check_value(name, value)
    return params


def _check_value(name: str, value: object) -> None:
    if name in _RANGES or name in _WHOLE:
        number = int if name in _WHOLE else (int, float)
        if isinstance(value, bool) or not isinstance(value, number):
            msg = f"{name} must be a {'whole ' if name in _WHOLE else ''}number, not {value!r}"
            raise BadSampling(msg)
    if name == "n" and value != 1:
        msg = f"n must be 1, not {value!r}: one row has one output"
        raise BadSampling(msg)
    low, high = _RANGES.get(name, (float("-inf"), float("inf")))
    if isinstance(value, (int, float)) and not low <= value <= high:
        msg = f"{name} must be {_span(low, high)}, not {value!r}"
        raise BadSampling(msg)


def _span(low: float, high: float) -> str:
    least = "more than 0" if 0 < low < 1 else f"at least {low:g}"
    return least if high == float("inf") else f"{least} and at most {high:g}"
