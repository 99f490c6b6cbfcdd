"""The body of a line for /v1/responses: text and functions, all of it in the line; made into a chat."""

from __future__ import annotations

from typing import Any

import orjson

from infra.data.bodies import SORTED, Body, Rules, bad, check_sampling, flag, given, guided_schema, whole
from infra.data.chat_bodies import text_of
from infra.data.tool_bodies import Function, checked_names, function_of, read_tools
from jobs.ports.engine import Message

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TEXTS = ("input_text", "output_text", "text")
_ITEMS = {
    "message": frozenset({"type", "role", "content", "id", "status"}),
    "function_call": frozenset({"type", "call_id", "name", "arguments", "id", "status"}),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status"}),
}
"""The items that are taken, and their fields: `id` and `status` come with items of an earlier answer."""


def read_response(body: dict[str, Any], rules: Rules) -> Body:
    """Raises BadBody."""
    sampling = given(body, body.keys() & {"temperature", "top_p"})
    if (limit := whole(body, "max_output_tokens", 1, 2**31 - 1)) is not None:
        sampling["max_tokens"] = limit
    if sampling:
        check_sampling(sampling)
    parallel = flag(body, "parallel_tool_calls", default=True)
    functions, choice = _functions(body.get("tools")), _choice(body.get("tool_choice"))
    tools = read_tools(functions, choice, parallel=parallel, no_tools=rules.no_tools)
    schema = _schema(body.get("text"))
    if schema is not None and tools is not None:
        raise bad('`text.format` cannot be used with `tools`, unless `tool_choice` is "none"', "text")
    return Body(
        prompt=_messages(body, rules),
        sampling=sampling,
        schema=tools.schema if tools is not None else schema,
        tools=None if tools is None else tools.text,
        tool_choice="auto" if tools is None else tools.choice,
        echo=_echo(body),
    )


def _echo(body: dict[str, Any]) -> dict[str, Any]:
    """What the answer repeats, in the form that it has there."""
    text = body.get("text") or {}
    return {
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": _metadata(body.get("metadata")),
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "temperature": body.get("temperature"),
        "text": {"format": text.get("format") or {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [{"parameters": None, "strict": None, **tool} for tool in body.get("tools") or ()],
        "top_p": body.get("top_p"),
    }


def _metadata(found: Any) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or len(found) > 16:
        raise bad("`metadata` must be an object of at most 16 texts", "metadata")
    for name, value in found.items():
        if not isinstance(value, str) or len(value) > 512 or len(name) > 64:
            raise bad("`metadata` takes names of at most 64 characters and texts of at most 512", "metadata")
    return found


def _schema(text: Any) -> str | None:
    if text is None:
        return None
    if not isinstance(text, dict) or [name for name in text if name != "format" and text[name] is not None]:
        raise bad("`text` can only have `format`", "text")
    asked = text.get("format")
    kind = asked.get("type") if isinstance(asked, dict) else None
    if asked is None or kind == "text":
        return None
    if kind == "json_object":
        return '{"type":"object"}'
    found = asked if isinstance(asked, dict) and kind == "json_schema" else {}
    name, schema = found.get("name"), found.get("schema")
    if not isinstance(name, str) or not isinstance(schema, dict):
        raise bad("`text.format` must be of type text, json_object or json_schema with a name and a schema", "text")
    return guided_schema(schema, "text")


def _functions(tools: Any) -> Any:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise bad("`tools` must be a list", "tools")
    found: list[Function] = []
    for place, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else type(tool).__name__
        if kind != "function":
            raise bad(f"tools[{place}] is of type {kind!r}; only functions are taken", "tools")
        found.append(function_of({name: value for name, value in tool.items() if name != "type"}, f"tools[{place}]"))
    return checked_names(found)


def _choice(choice: Any) -> Any:
    if choice is None or (isinstance(choice, str) and choice in {"auto", "none", "required"}):
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function" and isinstance(choice.get("name"), str):
        return [choice["name"]]
    raise bad("`tool_choice` must be auto, none, required, or a function by its name", "tool_choice")


# ---- input --------------------------------------------------------------------------------------


def _messages(body: dict[str, Any], rules: Rules) -> tuple[Message, ...]:
    instructions, asked = body.get("instructions"), body.get("input")
    if instructions is not None and not isinstance(instructions, str):
        raise bad("`instructions` must be text", "instructions")
    first: list[Message] = [("system", instructions)] if instructions else []
    if isinstance(asked, str):
        return (*first, ("user", asked))
    if not isinstance(asked, list) or not asked:
        raise bad("`input` must be a text or a list with at least one item", "input")
    return (*first, *(_item(item, place, rules) for place, item in enumerate(asked)))


def _item(item: Any, place: int, rules: Rules) -> Message:
    if not isinstance(item, dict):
        raise bad(f"input[{place}] must be an object", "input")
    kind = item.get("type", "message")
    if not isinstance(kind, str) or kind not in _ITEMS:
        raise bad(f"input[{place}] is of type {kind!r}; known are {', '.join(_ITEMS)}", "input")
    if extra := sorted(name for name in item if name not in _ITEMS[kind] and item[name] is not None):
        raise bad(f"input[{place}] has {', '.join(extra)}, which cannot be used here", "input")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise bad(f"input[{place}] has the role {role!r}; known are {', '.join(_ROLES)}", "input")
        return _ROLES[role], text_of(item.get("content"), f"input[{place}].content", _TEXTS)
    if rules.no_tools:
        raise bad(f"input[{place}] is about tools, which cannot be used: {rules.no_tools}", "input")
    return _of_call(item, kind, place)


def _of_call(item: dict[str, Any], kind: str, place: int) -> Message:
    wanted = ("call_id", "name", "arguments") if kind == "function_call" else ("call_id", "output")
    for name in wanted:
        if not isinstance(item.get(name), str):
            raise bad(f"input[{place}].{name} must be text", "input")
    if kind == "function_call_output":
        return "tool", item["output"], orjson.dumps({"tool_call_id": item["call_id"]}).decode()
    function = {"arguments": item["arguments"], "name": item["name"]}
    call = {"function": function, "id": item["call_id"], "type": "function"}
    return "assistant", "", orjson.dumps({"tool_calls": [call]}, option=SORTED).decode()
