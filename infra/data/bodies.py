"""One request of an OpenAI batch line: what of it can be done, and a refusal by name for everything else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from infra.data.guided import check_output_schema
from infra.engines.sampling import BadSampling, read_sampling
from jobs.errors import BadSchema
from jobs.ports.engine import Message

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""`developer` is OpenAI's newer word for `system`; chat templates know only the latter."""
_OWN = frozenset({"model", "messages", "response_format", "stream"})
SORTED = orjson.OPT_SORT_KEYS


class BadBody(Exception):
    """What is wrong with a request body; the caller adds where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request in our terms. sampling: only what the body says itself; schema: JSON text."""

    messages: tuple[Message, ...]
    sampling: dict[str, Any]
    schema: str | None


def read_body(body: Any, model: str | None) -> Body:
    """Raises BadBody naming the field. model: what `model` must be, None for any."""
    if not isinstance(body, dict):
        msg = "`body` must be an object"
        raise BadBody(msg)
    unknown = sorted(name for name in body if name not in _OWN and not _is_sampling(name))
    if unknown:
        msg = f"the body field{'s' * (len(unknown) > 1)} {', '.join(unknown)} cannot be used here; remove it"
        raise BadBody(msg)
    _check_model(body.get("model"), model)
    if body.get("stream"):
        msg = "`stream` cannot be used in a batch"
        raise BadBody(msg)
    sampling = {name: value for name, value in body.items() if name not in _OWN and value is not None}
    _check_sampling(sampling)
    return Body(
        messages=read_messages(body.get("messages")), sampling=sampling, schema=_schema(body.get("response_format"))
    )


@lru_cache(maxsize=1024)
def _is_sampling(name: str) -> bool:
    """Whether an engine would know the parameter; null stands for "not given" and is not checked further."""
    try:
        read_sampling(orjson.dumps({name: None}).decode())
    except BadSampling:
        return False
    return True


def _check_model(found: Any, model: str | None) -> None:
    if not isinstance(found, str) or not found:
        msg = "`model` is missing"
        raise BadBody(msg)
    if model is not None and found != model:
        msg = f"`model` is {found!r}, but this job runs {model!r}"
        raise BadBody(msg)


def _check_sampling(sampling: dict[str, Any]) -> None:
    if "max_tokens" in sampling and "max_completion_tokens" in sampling:
        msg = "give max_tokens or max_completion_tokens, not both"
        raise BadBody(msg)
    if sampling:
        try:
            read_sampling(orjson.dumps(sampling).decode())
        except BadSampling as error:
            raise BadBody(str(error)) from error


def read_messages(messages: Any) -> tuple[Message, ...]:
    """Chat messages of plain text. Raises BadBody."""
    if not isinstance(messages, list) or not messages:
        msg = "`messages` must be a list with at least one message"
        raise BadBody(msg)
    return tuple([_message(entry, number) for number, entry in enumerate(messages)])


def _message(entry: Any, number: int) -> Message:
    if not isinstance(entry, dict):
        msg = f"messages[{number}] must be an object"
        raise BadBody(msg)
    extra = sorted(name for name in entry if name not in {"role", "content"} and entry[name] is not None)
    if extra:
        msg = f"messages[{number}] has {', '.join(extra)}, which cannot be used here"
        raise BadBody(msg)
    role = entry.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        msg = f"messages[{number}] has the role {role!r}; known are {', '.join(_ROLES)}"
        raise BadBody(msg)
    return _ROLES[role], _content(entry.get("content"), number)


def _content(content: Any, number: int) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        msg = f"messages[{number}].content must be text"
        raise BadBody(msg)
    texts: list[str] = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            msg = f"messages[{number}].content[{place}] is of type {kind!r}; only text parts are taken"
            raise BadBody(msg)
        texts.append(part["text"])
    return "\n".join(texts)  # as vLLM joins them


@lru_cache(maxsize=1024)
def _schema_fault(schema: str) -> str | None:
    """What is wrong with it; most requests of a file have the same few."""
    try:
        check_output_schema(schema)
    except BadSchema as error:
        return str(error.data["reason"])
    return None


def _schema(response_format: Any) -> str | None:
    if response_format is None:
        return None
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return '{"type":"object"}'
    inner = response_format.get("json_schema") if kind == "json_schema" else None
    if isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
        schema = orjson.dumps(inner["schema"], option=SORTED).decode()
        fault = _schema_fault(schema)
        if fault is None:
            return schema
        msg = f"the schema of `response_format` cannot be used: {fault}"
        raise BadBody(msg)
    msg = "`response_format` must be of type text, json_object or json_schema with a schema"
    raise BadBody(msg)
