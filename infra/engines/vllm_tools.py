"""Calls of tools in a model's output, found by vLLM's parser for the way in which the model writes them."""

from __future__ import annotations

import logging
from typing import Any

import orjson
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from infra.engines.answers import Calls
from infra.engines.backend import StartFailed
from infra.hints import nearest

ARGUMENT = "tool_call_parser"
"""Named as vLLM's server names it; its engine does not know it."""
_log = logging.getLogger("nightmill.engine.tools")


def check_parser(name: Any) -> None:
    """Raise StartFailed, with the nearest name, where vLLM has no such parser."""
    known = ToolParserManager.list_registered()
    if name not in known:
        near = nearest(str(name), known)
        hint = f"did you mean {near}?" if near else f"known are {', '.join(known)}"
        raise StartFailed(f"unknown {ARGUMENT} {name}: {hint}")


class ToolCalls:
    """Finds the calls that outputs of one profile make. tools: OpenAI's list, as JSON."""

    def __init__(self, parser: str, tokenizer: Any, tools: str) -> None:
        self._make = ToolParserManager.get_tool_parser(parser)
        self._tokenizer = tokenizer
        request = ChatCompletionRequest(
            messages=[{"role": "user", "content": ""}], tools=orjson.loads(tools), tool_choice="auto"
        )
        self._request = self._parser(request).adjust_request(request)

    @property
    def skip_special_tokens(self) -> bool:
        """Some parsers go by tokens that are left out of an output otherwise."""
        return bool(self._request.skip_special_tokens)

    def __call__(self, text: str) -> tuple[str | None, Calls]:
        try:
            found = self._parser(self._request).extract_tool_calls(text, self._request)
        except Exception:  # noqa: BLE001 - whatever a parser raises, the output is then a text like any other
            _log.exception("tool_parser_failed")
            return text, []
        if not found.tools_called:
            return text, []
        return found.content, [(call.function.name, call.function.arguments) for call in found.tool_calls]

    def _parser(self, request: Any) -> Any:
        """A new one each time: they keep what they saw."""
        return self._make(self._tokenizer, request.tools)
