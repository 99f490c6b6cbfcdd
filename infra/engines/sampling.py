"""Sampling parameters by the names that OpenAI and vLLM give them: which are known, and a first check of values.

Both backends use it, so that a parameter is refused the same way by the fake engine and by the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import orjson

_KIND_OF = {
    "bad_words": "texts",
    "chat_template_kwargs": "object",
    "frequency_penalty": "number",
    "ignore_eos": "flag",
    "include_stop_str_in_output": "flag",
    "logit_bias": "object",
    "max_completion_tokens": "whole",
    "max_tokens": "whole",
    "min_p": "number",
    "min_tokens": "whole",
    "n": "whole",
    "presence_penalty": "number",
    "repetition_penalty": "number",
    "seed": "whole",
    "skip_special_tokens": "flag",
    "spaces_between_special_tokens": "flag",
    "stop": "stop",
    "stop_token_ids": "numbers",
    "temperature": "number",
    "top_k": "whole",
    "top_p": "number",
}
_RANGES: Mapping[str, tuple[float, float]] = {
    "frequency_penalty": (-2, 2),
    "max_tokens": (1, float("inf")),
    "min_p": (0, 1),
    "min_tokens": (0, float("inf")),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (1e-9, float("inf")),
    "temperature": (0, 2),
    "top_k": (-1, float("inf")),
    "top_p": (1e-9, 1),
}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _is_filled_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _span(low: float, high: float) -> str:
    least = "more than 0" if 0 < low < 1 else f"at least {low:g}"
    return least if high == float("inf") else f"{least} and at most {high:g}"


_KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "flag": ("true or false", lambda value: isinstance(value, bool)),
    "number": ("a number", _is_number),
    "numbers": ("a list of whole numbers", lambda value: _is_list_of(value, _is_whole)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "stop": (
        "a text or a list of texts, none empty",
        lambda value: _is_filled_text(value) or _is_list_of(value, _is_filled_text),
    ),
    "texts": ("a list of texts, none empty", lambda value: _is_list_of(value, _is_filled_text)),
    "whole": ("a whole number", _is_whole),
}


class BadSampling(Exception):
    """A sampling parameter is unknown or has a value that cannot be; the message names it."""


def read_sampling(text: str) -> dict[str, Any]:
    """The parameters of a profile, checked, with `max_completion_tokens` folded into `max_tokens`.

    A null value means "not given", as it does for OpenAI. Raises BadSampling.
    """
    given = orjson.loads(text)
    if not isinstance(given, dict):
        raise BadSampling("the sampling parameters are not an object")
    for name in given:
        if name not in _KIND_OF:
            near = get_close_matches(name, _KIND_OF, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadSampling(f"unknown sampling parameter {name}{hint}")
    params = {name: value for name, value in given.items() if value is not None}
    if "max_completion_tokens" in params:
        params["max_tokens"] = params.pop("max_completion_tokens")
    for name, value in params.items():
        _check_value(name, value)
    return params


def _check_value(name: str, value: object) -> None:
    expected, fits = _KINDS[_KIND_OF[name]]
    if not fits(value):
        raise BadSampling(f"{name} must be {expected}, not {value!r}")
    if name == "n" and value != 1:
        raise BadSampling(f"n must be 1, not {value!r}: one row has one output")
    low, high = _RANGES.get(name, (float("-inf"), float("inf")))
    if isinstance(value, (int, float)) and not low <= value <= high:
        raise BadSampling(f"{name} must be {_span(low, high)}, not {value!r}")
