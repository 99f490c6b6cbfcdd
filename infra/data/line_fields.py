"""The fields of a line's body, by endpoint: what is carried to the engine, what asks for nothing, what is refused.

docs/lines.md has the same for readers, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infra.engines.sampling import NAMES as SAMPLING

CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
)

_GENERATING = SAMPLING - {"n", "logprobs", "max_completion_tokens", "chat_template_kwargs"}
CARRIED: Mapping[str, frozenset[str]] = {
    CHAT: _GENERATING
    | {
        *("model", "messages", "n", "max_completion_tokens", "logprobs", "top_logprobs", "response_format"),
        *("tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs"),
    },
    COMPLETIONS: _GENERATING | {"model", "prompt", "n", "logprobs", "response_format"},
    EMBEDDINGS: frozenset({"model", "input", "dimensions", "encoding_format"}),
    RESPONSES: frozenset(
        {
            *("model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "text", "metadata"),
            *("tools", "tool_choice", "parallel_tool_calls"),
        }
    ),
}
"""Whatever of them cannot be done is refused by its value."""


def _is_label(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 512


def _is_labels(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= 16 and all(map(_is_label, value.values()))


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(value is one or (value == one and type(value) is type(one)) for one in values)


_EVERYWHERE: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "user": (_is_label, "a text of at most 512 characters"),
    "safety_identifier": (_is_label, "a text of at most 512 characters"),
}
_TIER = (_is("auto", "default"), '"auto" or "default"')
_NOT_ASKED: tuple[Callable[[Any], bool], str] = (_is(False), "false")
WITHOUT_EFFECT: Mapping[str, Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    CHAT: {
        **_EVERYWHERE,
        "metadata": (_is_labels, "an object of at most 16 texts of at most 512 characters"),
        "modalities": (_is(["text"]), '["text"]'),
        "service_tier": _TIER,
        "store": _NOT_ASKED,
        "stream": _NOT_ASKED,
    },
    COMPLETIONS: {**_EVERYWHERE, "best_of": (_is(1), "1"), "echo": _NOT_ASKED, "stream": _NOT_ASKED},
    EMBEDDINGS: {**_EVERYWHERE},
    RESPONSES: {
        **_EVERYWHERE,
        "background": _NOT_ASKED,
        "service_tier": _TIER,
        "store": _NOT_ASKED,
        "stream": _NOT_ASKED,
        "truncation": (_is("disabled"), '"disabled"'),
    },
}
"""Fields that are taken with a value that asks for nothing, and with no other: what it must be, and in words."""

_TEMPLATE = "a model is asked with its own chat template"
_GUIDED = "use response_format with a json_schema"
MENDS: Mapping[str, str] = {
    "audio": "answers are text",
    "background": "a batch is in the background as it is",
    "best_of": "use n",
    "cache_salt": "the server keeps the caches of tenants apart by itself",
    "chat_template": _TEMPLATE,
    "chat_template_kwargs": _TEMPLATE,
    "conversation": "a line must bring all of its input",
    "function_call": "use tool_choice",
    "functions": "use tools",
    "guided_choice": _GUIDED,
    "guided_grammar": _GUIDED,
    "guided_json": _GUIDED,
    "guided_regex": _GUIDED,
    "logprobs": "use /v1/chat/completions",
    "max_completion_tokens": "use max_tokens",
    "max_tokens": "use max_output_tokens",
    "messages": "use input",
    "previous_response_id": "a line must bring all of its input",
    "prompt_cache_key": "rows that begin alike share the cache by themselves",
    "response_format": "use text.format",
    "store": "no answer is kept to be asked for by its id",
    "stream": "a batch answers in its output file",
    "structured_outputs": _GUIDED,
    "suffix": "the engine only continues a prompt",
    "top_logprobs": "use /v1/chat/completions",
}
"""What to do instead, for those fields that are refused and have an answer to that."""


def mend_of(name: str) -> str:
    """In words, to stand behind a refusal; empty where there is none."""
    return f" ({MENDS[name]})" if name in MENDS else ""
