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
    "logprobs": "whole",
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
NAMES = frozenset(_KIND_OF)
"""Of all parameters."""
_LARGEST = 2**31 - 1
_MOST_ENTRIES = 1024
_MOST_CHARS = 1000
_OURS = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "messages",
    "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize", "tokenizer_kwargs", "tools",
    "truncation",
})  # fmt: skip
"""Arguments of a chat template that are not a caller's to set: `chat_template` would be another one altogether."""
_RANGES: Mapping[str, tuple[float, float]] = {
    "frequency_penalty": (-2, 2),
    "logprobs": (0, 20),
    "max_tokens": (1, _LARGEST),
    "min_p": (0, 1),
    "min_tokens": (0, _LARGEST),
    "n": (1, 128),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (1e-9, 100),
    "seed": (-(2**63), 2**63 - 1),
    "temperature": (0, 2),
    "top_k": (-1, _LARGEST),
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


def _shown(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _span(low: float, high: float, value: float) -> str:
    least = "more than 0" if 0 < low < 1 else f"at least {_shown(low)}"
    return least if high >= _LARGEST and value < low else f"{least} and at most {_shown(high)}"


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
    """A sampling parameter is unknown or has a value that cannot be; the message names it, and so does `name`."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


def read_sampling(text: str) -> dict[str, Any]:
    """The parameters of a profile, checked, with `max_completion_tokens` folded into `max_tokens`.

    A null value means "not given", as it does for OpenAI. Raises BadSampling.
    """
    given = orjson.loads(text)
    if not isinstance(given, dict):
        raise BadSampling("the sampling parameters are not an object")
    return checked(given)


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """As `read_sampling`, of parameters that are parsed already."""
    for name in given:
        if name not in _KIND_OF:
            near = get_close_matches(name, _KIND_OF, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadSampling(f"unknown sampling parameter {name}{hint}", name)
    params = {name: value for name, value in given.items() if value is not None}
    if "max_completion_tokens" in params:
        params["max_tokens"] = params.pop("max_completion_tokens")
    for name, value in params.items():
        _check_value(name, value)
    return params


def _check_value(name: str, value: object) -> None:
    expected, fits = _KINDS[_KIND_OF[name]]
    if not fits(value):
        raise BadSampling(f"{name} must be {expected}, not {value!r}", name)
    if isinstance(value, (list, dict)):
        _check_many(name, value)
    low, high = _RANGES.get(name, (float("-inf"), float("inf")))
    if isinstance(value, (int, float)) and not low <= value <= high:
        raise BadSampling(f"{name} must be {_span(low, high, value)}, not {value!r}", name)


def _check_many(name: str, value: list[Any] | dict[str, Any]) -> None:
    if len(value) > _MOST_ENTRIES:
        raise BadSampling(f"{name} has {len(value)} entries; at most {_MOST_ENTRIES} are taken", name)
    if any(isinstance(entry, str) and len(entry) > _MOST_CHARS for entry in value):
        raise BadSampling(f"{name} has a text of more than {_MOST_CHARS} characters", name)
    if isinstance(value, dict):
        _check_object(name, value)


def _check_object(name: str, value: dict[str, Any]) -> None:
    for key, entry in value.items():
        if name == "logit_bias" and not (key.isdecimal() and key.isascii() and _is_number(entry)):
            raise BadSampling("logit_bias must be an object from token ids to numbers", name)
        if name == "chat_template_kwargs":
            if key in _OURS:
                raise BadSampling(f"chat_template_kwargs.{key} cannot be set", name)
            if not isinstance(entry, bool | int | float | str) or (isinstance(entry, str) and len(entry) > _MOST_CHARS):
                raise BadSampling(f"chat_template_kwargs.{key} must be true, false, a number or a short text", name)
