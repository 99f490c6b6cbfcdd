"""Counting tokens as the engine will, without one: the model folder's own tokenizer and chat template.

It needs the package `tokenizers`, which comes with vLLM. Without it, and for the fake model, four characters count as
a token; for the fake model that is exact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module, util
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from infra.models.shipped import FAKE
from jobs.errors import BadTemplate
from jobs.model import Model
from jobs.ports.engine import Message, Prompt, Several
from jobs.ports.intake import Tokenizer
from jobs.prompts import messages_of, plain_text

CHARS_PER_TOKEN = 4
FRAME = (-1, -2)
"""What the fake engine adds to each message: two tokens."""
_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token")


def tokenizer_of(model: Model) -> Tokenizer:
    """The best there is for this model here."""
    if model.engine == FAKE:
        return ChunkTokenizer(exact=True)
    if util.find_spec("tokenizers") is None or not (Path(model.path) / "tokenizer.json").is_file():
        return ChunkTokenizer(exact=False)
    return FolderTokenizer(Path(model.path), chat=model.kind == "chat")


def shows_tools(model: Model) -> bool:
    """Whether its chat template says anything of tools. The fake engine has none and takes them as they are."""
    if model.engine == FAKE:
        return True
    folder = Path(model.path)
    config = _json(folder / "tokenizer_config.json")
    named = config.get("chat_template")
    several = isinstance(named, list) and any(item["name"] == "tool_use" for item in named)
    return several or "tools" in _source(folder, config)


class ChunkTokenizer:
    """Every four characters are a token, equal ones the same."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact

    @property
    def exact(self) -> bool:
        return self._exact

    def ids(self, prompt: Prompt) -> Sequence[int]:
        if isinstance(prompt, str):
            return _chunks(prompt)
        if messages := messages_of(prompt):
            return [number for message in messages for number in (*FRAME, *_chunks("".join(message[1:])))]
        return _of_texts(self, prompt)


def _chunks(text: str) -> list[int]:
    return [hash(text[at : at + CHARS_PER_TOKEN]) for at in range(0, len(text) or 1, CHARS_PER_TOKEN)]


def _of_texts(tokenizer: Tokenizer, prompt: Prompt) -> Sequence[int]:
    """Of token ids, or of several inputs one after another."""
    if isinstance(prompt, Several):
        return [number for text in prompt.inputs for number in tokenizer.ids(text)]
    return [part for part in prompt if isinstance(part, int)]


class FolderTokenizer:
    """`tokenizer.json` and the chat template of a Hugging Face folder, put together as vLLM does."""

    exact = True

    def __init__(self, folder: Path, *, chat: bool) -> None:
        tokenizers: Any = import_module("tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._chat = ChatTemplate(folder) if chat else None

    def ids(self, prompt: Prompt) -> Sequence[int]:
        """Raises BadTemplate when the model's chat template refuses the messages."""
        if isinstance(prompt, str):
            return list(self._tokenizer.encode(prompt, add_special_tokens=True).ids)
        if not (messages := messages_of(prompt)):
            return _of_texts(self, prompt)
        text = self._chat.render(messages) if self._chat else plain_text(prompt)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)  # the template wrote them


class ChatTemplate:
    """A model's chat template, in the environment that transformers gives it (utils/chat_template_utils.py)."""

    def __init__(self, folder: Path) -> None:
        config = _json(folder / "tokenizer_config.json")
        named = {**_json(folder / "special_tokens_map.json"), **config}
        self._tokens = {name: _token(named[name]) for name in _SPECIAL_TOKENS if named.get(name)}
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_refuse, strftime_now=datetime.now().astimezone().strftime)
        self._template = environment.from_string(_source(folder, config))

    def render(self, messages: Sequence[Message]) -> str:
        """The text that the engine tokenises. Raises BadTemplate."""
        values = [{"role": message[0], "content": message[1]} for message in messages]
        try:
            return self._template.render(messages=values, add_generation_prompt=True, tools=None, **self._tokens)
        except jinja2.TemplateError as error:
            raise BadTemplate(reason=f"the model's own chat template refuses it ({error})") from error


def _source(folder: Path, config: Mapping[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = config.get("chat_template") or _json(folder / "chat_template.json").get("chat_template") or ""
    if isinstance(found, list):  # several, by name
        return str(next((item["template"] for item in found if item["name"] == "default"), ""))
    return str(found)


def _token(value: Any) -> str:
    return str(value["content"]) if isinstance(value, dict) else str(value)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _json(file: Path) -> Mapping[str, Any]:
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found if isinstance(found, dict) else {}
