"""Tools in a request: the functions that a model may call, which of them it must, and what it then has to write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from infra.data.bodies import SORTED, Faults, bad, guided_schema
from infra.data.guided import check_is_schema
from infra.data.schema_bounds import check_bounds

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FUNCTION = frozenset({"name", "description", "parameters", "strict"})

Function = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """text: chat's list of tools as canonical JSON. choice: as in `RequestProfile`. schema: what the output must follow
    so that it calls what it must, None where the model decides.
    """

    text: str
    choice: str = "auto"
    schema: str | None = None


def read_tools(functions: Sequence[Function], choice: Any, *, parallel: bool, no_tools: str) -> Tools | None:
    """None where the model has nothing to call. functions: as `function_of` gives them. choice: `auto`, `none`,
    `required`, or the name of a function in a list of one. Raises BadBody.
    """
    if not functions:
        if choice not in (None, "auto", "none"):
            raise bad("`tool_choice` needs `tools`", "tool_choice")
        return None
    if no_tools:
        raise bad(f"`tools` cannot be used: {no_tools}", "tools", "unsupported_parameter")
    if choice == "none":
        return None
    text = orjson.dumps([{"type": "function", "function": one} for one in functions], option=SORTED).decode()
    if choice in (None, "auto"):
        return Tools(text=text)
    if choice == "required":
        return Tools(text=text, choice="required", schema=guided_schema(_any_of(functions, parallel=parallel), "tools"))
    (name,) = choice
    for one in functions:
        if one["name"] == name:
            return Tools(text=text, choice=name, schema=guided_schema(_parameters(one), "tools"))
    raise bad(f"`tool_choice` names {name!r}, which is not among the tools", "tool_choice")


def function_of(found: Any, place: str) -> Function:
    """A function that may be called. Raises BadBody."""
    if not isinstance(found, dict):
        raise bad(f"{place} must be an object with the name of a function", "tools")
    if extra := sorted(name for name in found if name not in _FUNCTION and found[name] is not None):
        raise bad(f"{place} has {', '.join(extra)}, which cannot be used here", "tools")
    name, description, strict = found.get("name"), found.get("description"), found.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad(f"{place} has the name {name!r}; it takes 1 to 64 letters, digits, _ and -", "tools")
    if description is not None and not isinstance(description, str):
        raise bad(f"{place}.description must be text", "tools")
    if strict is not None and not isinstance(strict, bool):
        raise bad(f"{place}.strict must be true or false", "tools")
    parameters = found.get("parameters")
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise bad(f"{place}.parameters must be a JSON Schema", "tools")
        if (fault := _plain.of(orjson.dumps(parameters, option=SORTED).decode())) is not None:
            raise bad(f"{place}.parameters cannot be used: {fault}", "tools")
    return {word: value for word, value in found.items() if value is not None}


def checked_names(functions: Sequence[Function]) -> Sequence[Function]:
    """Raises BadBody when there are too many, or two of a name."""
    if len(functions) > MAX_TOOLS:
        raise bad(f"`tools` has {len(functions)} functions; at most {MAX_TOOLS} are taken", "tools")
    names = [one["name"] for one in functions]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise bad(f"`tools` has the function {twice} twice", "tools")
    return functions


def _check_plain(text: str) -> None:
    """Bounds and form alone: nothing but a validator follows it."""
    schema = orjson.loads(text)
    check_bounds(text, schema)
    check_is_schema(schema)


_plain = Faults(_check_plain)


def _parameters(function: Function) -> dict[str, Any]:
    return function.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}


def _any_of(functions: Sequence[Function], *, parallel: bool) -> dict[str, Any]:
    """A list of calls, as vLLM words it: `[{"name", "parameters"}]`."""
    definitions: dict[str, Any] = {}
    branches = []
    for one in functions:
        parameters = dict(_parameters(one))
        _merge(definitions, parameters.pop("$defs", {}), one["name"])
        branches.append(
            {
                "properties": {"name": {"enum": [one["name"]], "type": "string"}, "parameters": parameters},
                "required": ["name", "parameters"],
                "type": "object",
            }
        )
    schema: dict[str, Any] = {"items": {"anyOf": branches}, "minItems": 1, "type": "array"}
    if not parallel:
        schema["maxItems"] = 1
    return {**schema, "$defs": definitions} if definitions else schema


def _merge(definitions: dict[str, Any], more: Mapping[str, Any], function: str) -> None:
    for name, schema in more.items():
        if definitions.setdefault(name, schema) != schema:
            raise bad(f"$defs/{name} of the function {function} is another one elsewhere in `tools`", "tools")


def strict_schemas(tools: str) -> dict[str, dict[str, Any]]:
    """The parameters of the functions that are to be called strictly."""
    functions = [tool["function"] for tool in orjson.loads(tools)]
    return {one["name"]: _parameters(one) for one in functions if one.get("strict")}


def check_call(call: Any, place: str) -> dict[str, Any]:
    """A call in the history of a chat, as OpenAI's `tool_calls` have it. Raises BadBody."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or call.get("type", "function") != "function":
        raise bad(f"{place} must be a call of a function", "messages")
    name, arguments, call_id = function.get("name"), function.get("arguments"), call.get("id")
    if not isinstance(name, str) or not isinstance(arguments, str) or not isinstance(call_id, str):
        raise bad(f"{place} must have an id, and a function with a name and arguments, all texts", "messages")
    return {"function": {"arguments": arguments, "name": name}, "id": call_id, "type": "function"}
