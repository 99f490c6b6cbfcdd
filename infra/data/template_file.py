"""`--template FILE`: YAML with `messages` (role, content) or one `text`, both Jinja over the columns."""

from __future__ import annotations

from typing import Any

import yaml

from jobs.errors import BadTemplate

Messages = tuple[tuple[str, str], ...]


def read_template(text: str) -> tuple[Messages, str | None]:
    """(messages, None) or ((), text). Raises BadTemplate."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadTemplate(reason=f"the file is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise BadTemplate(reason="the file must be a mapping with `messages` or `text`")
    for name in found:
        if name not in {"messages", "text"}:
            raise BadTemplate(reason=f"the file has an unknown entry {name!r}; known are messages and text")
    if len(found) != 1:
        raise BadTemplate(reason="the file must have either `messages` or `text`")
    if "text" in found:
        return (), _text(found["text"], "text")
    messages = found["messages"]
    if not isinstance(messages, list) or not messages:
        raise BadTemplate(reason="`messages` must be a list of role and content")
    return tuple(_message(entry, number) for number, entry in enumerate(messages, start=1)), None


def _message(entry: Any, number: int) -> tuple[str, str]:
    if not isinstance(entry, dict) or set(entry) != {"role", "content"}:
        raise BadTemplate(reason=f"message {number} must have exactly `role` and `content`")
    return _text(entry["role"], f"the role of message {number}"), _content(entry["content"], number)


def _content(value: Any, number: int) -> str:
    if not isinstance(value, list):
        return _text(value, f"the content of message {number}")
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text":
            raise BadTemplate(reason=f"message {number} has a content part of type {kind!r}; only text is taken")
        texts.append(_text(part.get("text"), f"the text of message {number}"))
    return "\n".join(texts)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise BadTemplate(reason=f"{what} must be text, not {value!r}")
    return value
