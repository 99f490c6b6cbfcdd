"""Prompt templates: compiled once a job, rendered a task at a time over Arrow columns.

A template that only puts columns between fixed texts (nearly all do) needs no Jinja at run time: it becomes one `%`
format over texts that are made column by column, with the same result at a tenth of the cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import jinja2
import pyarrow as pa
from jinja2 import nodes

from infra.data.mentions import ROW, mentioned, plain_key
from infra.data.sandbox import MAX_CHARS, PromptEnvironment, TooLong, context_for
from infra.data.values import python_values, text_values
from jobs.errors import BadTemplate
from jobs.ports.engine import Prompt
from jobs.ports.rows import RowFault

ROLES = ("system", "user", "assistant")
EMPTY_PROMPT = "empty_prompt"
TEMPLATE_ERROR = "template_error"
PROMPT_TOO_LARGE = "prompt_too_large"

_ENVIRONMENT = PromptEnvironment()
_GLOBALS = frozenset(_ENVIRONMENT.globals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One compiled text. `pattern`: a `%` format over `keys`, or None: `template` is run by Jinja."""

    role: str
    keys: tuple[str, ...]
    pattern: str | None
    template: jinja2.Template | None


class Columns:
    """A task's columns, converted to Python only when a template asks, and once."""

    def __init__(self, columns: Mapping[str, pa.Array], size: int) -> None:
        self.size = size
        self.faults: dict[int, RowFault] = {}
        self._columns = columns
        self._values: dict[str, list[Any]] = {}
        self._texts: dict[str, list[str]] = {}

    def values(self, name: str) -> list[Any]:
        if name not in self._values:
            found: dict[int, str] = {}
            self._values[name] = python_values(self._columns[name], found)
            self._note(name, found)
        return self._values[name]

    def texts(self, name: str) -> list[str]:
        if name not in self._texts:
            found: dict[int, str] = {}
            self._texts[name] = text_values(self._columns[name], found)
            self._note(name, found)
        return self._texts[name]

    def _note(self, name: str, found: dict[int, str]) -> None:
        for index, text in found.items():
            self.faults.setdefault(index, RowFault(TEMPLATE_ERROR, f"column {name}: {text}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """A job's prompt. columns: those it mentions, in the order mentioned; chat: messages rather than one text."""

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    chat: bool

    def leads(self) -> tuple[int, ...]:
        """For each mentioned column, how many fixed characters stand between it and the one before it."""
        leads: dict[str, int] = {}
        chars = 0
        for piece in self.pieces:
            texts = piece.pattern.split("%s") if piece.pattern is not None else ["" for _ in (*piece.keys, None)]
            for text, key in zip(texts, (*piece.keys, None), strict=True):
                chars += len(text)
                if key is not None and key not in leads:
                    leads[key], chars = chars, 0
        return tuple(leads[name] for name in self.columns)

    def render(
        self, columns: Mapping[str, pa.Array], size: int, skip: Mapping[int, RowFault]
    ) -> tuple[list[Prompt | None], dict[int, RowFault]]:
        """The prompt of every row (None at a fault), and the faults; rows in `skip` are not rendered."""
        data = Columns(columns, size)
        texts = [_render(piece, data, skip) for piece in self.pieces]
        faults = dict(skip)
        for index, fault in data.faults.items():
            faults.setdefault(index, fault)
        asked = [row for piece, row in zip(self.pieces, texts, strict=True) if piece.role == "user"]
        _check_sizes(asked, texts, faults)
        prompts: list[Prompt | None] = list(self._prompts(texts))
        for index in faults:
            prompts[index] = None
        return prompts, faults

    def _prompts(self, texts: list[list[str]]) -> Sequence[Prompt]:
        if not self.chat:
            return texts[0]
        parts: list[Any] = []
        for piece, row in zip(self.pieces, texts, strict=True):
            constant = piece.pattern is not None and not piece.keys
            # One shared tuple for a fixed message: rows then cost no memory for it.
            parts.append(
                repeat((piece.role, row[0] if row else ""), len(row))
                if constant
                else zip(repeat(piece.role), row, strict=False)
            )
        return list(zip(*parts, strict=True))


def _check_sizes(asked: Sequence[list[str]], texts: Sequence[list[str]], faults: dict[int, RowFault]) -> None:
    blank = RowFault(EMPTY_PROMPT, "the prompt of this row is empty")
    for index, user in enumerate(zip(*asked, strict=True)):
        if not any(text and not text.isspace() for text in user):
            faults.setdefault(index, blank)
    for row in texts:
        if max(map(len, row), default=0) > MAX_CHARS:
            for index, text in enumerate(row):
                if len(text) > MAX_CHARS:
                    why = f"the prompt has {len(text)} characters, more than {MAX_CHARS}"
                    faults.setdefault(index, RowFault(PROMPT_TOO_LARGE, why))


def _render(piece: Piece, data: Columns, skip: Mapping[int, RowFault]) -> list[str]:
    if piece.pattern is None:
        return _render_by_jinja(piece, data, skip)
    if not piece.keys:
        return [piece.pattern % ()] * data.size
    columns = [data.texts(key) for key in piece.keys]
    pattern = piece.pattern
    if pattern == "%s":
        return columns[0]
    return [pattern % row for row in zip(*columns, strict=True)]


def _render_by_jinja(piece: Piece, data: Columns, skip: Mapping[int, RowFault]) -> list[str]:
    columns = [data.values(key) for key in piece.keys]
    template = piece.template
    assert template is not None
    out: list[str] = []
    for index, row in enumerate(zip(*columns, strict=True) if columns else repeat((), data.size)):
        if index in skip or index in data.faults:
            out.append("")
            continue
        try:
            out.append(_run(template, dict(zip(piece.keys, row, strict=True))))
        except TooLong as error:
            out.append("")
            data.faults[index] = RowFault(PROMPT_TOO_LARGE, str(error))
        except Exception as error:  # noqa: BLE001 - a template can raise anything its filters and methods can
            out.append("")
            data.faults[index] = RowFault(TEMPLATE_ERROR, f"{type(error).__name__}: {error}")
    return out


def _run(template: jinja2.Template, values: dict[str, Any]) -> str:
    context = context_for(template, {**values, ROW: values})
    parts: list[str] = []
    chars = 0
    for text in template.root_render_func(context):
        chars += len(text)
        if chars > MAX_CHARS:
            msg = f"the prompt grows past {MAX_CHARS} characters"
            raise TooLong(msg)
        parts.append(text)
    return "".join(parts)


def compile_prompt(
    *, messages: Sequence[tuple[str, str]] = (), text: str | None = None, columns: Sequence[str]
) -> PromptTemplate:
    """Compile a job's templates against the columns there are. Raises BadTemplate, before anything starts."""
    if bool(messages) == (text is not None):
        raise BadTemplate(reason="give either messages or one text")
    wanted = [("user", text)] if text is not None else list(messages)
    for role, _ in wanted:
        if role not in ROLES:
            raise BadTemplate(reason=f"there is no role {role!r}; known are {', '.join(ROLES)}")
    if not any(role == "user" for role, _ in wanted):
        raise BadTemplate(reason="no message has the role user")
    pieces = tuple(_compile(role, source, columns, f"the {role} text") for role, source in wanted)
    if not any(piece.keys or piece.template or piece.pattern.strip() for piece in pieces if piece.role == "user"):  # type: ignore[union-attr]  # one of pattern and template is there
        raise BadTemplate(reason="the user text is empty")
    order = dict.fromkeys(key for piece in pieces for key in piece.keys)
    return PromptTemplate(pieces=pieces, columns=tuple(order), chat=text is None)


def _compile(role: str, source: str, columns: Sequence[str], where: str) -> Piece:
    try:
        tree = _ENVIRONMENT.parse(source)
        keys = mentioned(tree, columns, _GLOBALS, where)
        fast = _pattern(tree, set(columns))
        if fast is not None:
            return Piece(role=role, keys=fast[1], pattern=fast[0], template=None)
        return Piece(role=role, keys=tuple(keys), pattern=None, template=_ENVIRONMENT.compile_tree(tree))
    except jinja2.TemplateSyntaxError as error:
        raise BadTemplate(reason=f"{where}, line {error.lineno}: {error.message}") from error
    except RecursionError:
        raise BadTemplate(reason=f"{where} is nested too deeply") from None


def _pattern(tree: nodes.Template, columns: set[str]) -> tuple[str, tuple[str, ...]] | None:
    """A `%` format with the same result, and its columns; None when the template does more than put columns in."""
    parts: list[str] = []
    keys: list[str] = []
    for output in tree.body:
        if not isinstance(output, nodes.Output):
            return None
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                parts.append(node.data.replace("%", "%%"))
                continue
            key = plain_key(node)
            if key is None or key not in columns:
                return None
            parts.append("%s")
            keys.append(key)
    return "".join(parts), tuple(keys)
