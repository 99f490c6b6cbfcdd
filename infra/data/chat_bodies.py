"""The body of a line for /v1/chat/completions."""

from __future__ import annotations

from typing import Any

import orjson

from infra.data.bodies import SORTED, Body, Rules, bad, check_sampling, flag, given, read_format, whole
from infra.data.line_fields import CARRIED, CHAT
from infra.data.tool_bodies import check_call, checked_names, function_of, read_tools
from infra.engines.sampling import NAMES
from jobs.ports.engine import Message

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""`developer` is OpenAI's newer word for `system`; chat templates know only the latter."""
_SAMPLING = (CARRIED[CHAT] & NAMES) - {"logprobs"}
_FIELDS = {
    "assistant": frozenset({"role", "content", "tool_calls"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_PLAIN = frozenset({"role", "content"})


def read_chat(body: dict[str, Any], rules: Rules) -> Body:
    """Raises BadBody."""
    sampling = given(body, _SAMPLING & body.keys())
    _read_logprobs(body, sampling)
    if sampling:
        check_sampling(sampling)
    messages = read_messages(body.get("messages"), rules)
    schema = read_format(body.get("response_format"))
    if not body.keys() & {"tools", "tool_choice", "parallel_tool_calls"}:
        return Body(prompt=messages, sampling=sampling, schema=schema)
    parallel = flag(body, "parallel_tool_calls", default=True)
    tools = read_tools(_functions(body.get("tools")), _choice(body), parallel=parallel, no_tools=rules.no_tools)
    if tools is None:
        return Body(prompt=messages, sampling=sampling, schema=schema)
    if schema is not None:
        raise bad('`response_format` cannot be used with `tools`, unless `tool_choice` is "none"', "response_format")
    return Body(
        prompt=messages,
        sampling=sampling,
        schema=tools.schema,
        tools=tools.text,
        tool_choice=tools.choice,
        echo=None if parallel else {"parallel_tool_calls": False},
    )


def _read_logprobs(body: dict[str, Any], sampling: dict[str, Any]) -> None:
    top = whole(body, "top_logprobs", 0, 20)
    if flag(body, "logprobs", default=False):
        sampling["logprobs"] = top or 0
    elif top is not None:
        raise bad("`top_logprobs` needs `logprobs`: true", "top_logprobs")


def _functions(tools: Any) -> Any:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise bad("`tools` must be a list", "tools")
    for place, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else type(tool).__name__
        if kind != "function" or tool.keys() - {"type", "function"}:
            raise bad(f"tools[{place}] is of type {kind!r}; only functions are taken, as type and function", "tools")
    return checked_names([function_of(tool.get("function"), f"tools[{place}]") for place, tool in enumerate(tools)])


def _choice(body: dict[str, Any]) -> Any:
    choice = body.get("tool_choice")
    if choice is None or (isinstance(choice, str) and choice in {"auto", "none", "required"}):
        return choice
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        return [function["name"]]
    raise bad("`tool_choice` must be auto, none, required, or a function by its name", "tool_choice")


# ---- messages -----------------------------------------------------------------------------------


def read_messages(messages: Any, rules: Rules) -> tuple[Message, ...]:
    """Chat messages of text and of calls. Raises BadBody."""
    if not isinstance(messages, list) or not messages:
        raise bad("`messages` must be a list with at least one message", "messages")
    return tuple([_message(entry, number, rules) for number, entry in enumerate(messages)])


def _message(entry: Any, number: int, rules: Rules) -> Message:
    if not isinstance(entry, dict):
        raise bad(f"messages[{number}] must be an object", "messages")
    role = entry.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise bad(f"messages[{number}] has the role {role!r}; known are {', '.join(_ROLES)}", "messages")
    known = _FIELDS.get(role, _PLAIN)
    extra = sorted(name for name in entry if name not in known and entry[name] is not None)
    if extra:
        raise bad(f"messages[{number}] has {', '.join(extra)}, which cannot be used here", "messages")
    if role == "tool" or entry.get("tool_calls") is not None:
        return _tool_message(entry, role, number, rules)
    return _ROLES[role], text_of(entry.get("content"), f"messages[{number}].content")


def _tool_message(entry: dict[str, Any], role: str, number: int, rules: Rules) -> Message:
    place = f"messages[{number}]"
    if rules.no_tools:
        raise bad(
            f"{place} is about tools, which cannot be used: {rules.no_tools}", "messages", "unsupported_parameter"
        )
    if role == "tool":
        call_id = entry.get("tool_call_id")
        if not isinstance(call_id, str):
            raise bad(f"{place}.tool_call_id must be text", "messages")
        return _with_more(role, text_of(entry.get("content"), f"{place}.content"), {"tool_call_id": call_id})
    calls = entry["tool_calls"]
    if not isinstance(calls, list) or not calls:
        raise bad(f"{place}.tool_calls must be a list with at least one call", "messages")
    content = entry.get("content")
    text = "" if content is None else text_of(content, f"{place}.content")
    found = [check_call(call, f"{place}.tool_calls[{at}]") for at, call in enumerate(calls)]
    return _with_more(role, text, {"tool_calls": found})


def _with_more(role: str, content: str, more: dict[str, Any]) -> Message:
    return role, content, orjson.dumps(more, option=SORTED).decode()


def text_of(content: Any, place: str, kinds: tuple[str, ...] = ("text",)) -> str:
    """What a message says; parts are joined as vLLM joins them. Raises BadBody."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad(f"{place} must be text", place.partition("[")[0])
    texts: list[str] = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind not in kinds or not isinstance(part.get("text"), str):
            raise bad(f"{place}[{number}] is of type {kind!r}; only text parts are taken", place.partition("[")[0])
        texts.append(part["text"])
    return "\n".join(texts)
