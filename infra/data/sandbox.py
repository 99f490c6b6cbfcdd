"""The Jinja environment of prompt templates: sandboxed, strict, and bounded in what one row may make it do.

Jinja's sandbox keeps a template from reaching Python's insides; it does not keep it from running for ever or filling
the memory. So every loop step and every call counts against a budget, and the operators that can make a long text out
of a short one are checked before they work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from infra.data.values import text_of

MAX_STEPS = 100_000
"""Loop steps and calls that one row may take (about 20 ms)."""
MAX_CHARS = 16 << 20
"""Characters of one rendered prompt; no model's context is as long."""
_BUDGET = "_nightmill_steps"
_GUARD = "_nightmill_guard"
_CONCAT = "_nightmill_concat"
_SEQUENCES = (str, bytes, list, tuple)
_WIDENING = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs"})


class TooLong(jinja2.TemplateRuntimeError):
    """The text grows past MAX_CHARS."""


class Steps:
    """How much work one row has left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            msg = f"the template takes more than {MAX_STEPS} steps for this row"
            raise jinja2.TemplateRuntimeError(msg)


def context_for(template: jinja2.Template, values: dict[str, Any]) -> Context:
    """A context with a fresh budget."""
    values[_BUDGET] = Steps()
    return template.new_context(values, shared=False)


class PromptEnvironment(ImmutableSandboxedEnvironment):
    """What prompt templates are compiled in. Safe to render from several threads."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self) -> None:
        super().__init__(undefined=jinja2.StrictUndefined, finalize=text_of, autoescape=False)
        self.globals.pop("lipsum", None)
        self.filters[_GUARD] = _guard
        self.filters[_CONCAT] = _concat
        for name in ("center", "indent", "wordwrap", "format"):
            self.filters[name] = _narrow(self.filters[name])

    def compile_tree(self, tree: nodes.Template) -> jinja2.Template:
        """Compile a parsed template with its loops and concatenations bounded."""
        bounded = _Bound().visit(tree)
        return self.from_string(bounded)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in _WIDENING:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: PYI063 - Jinja's own signature
        _steps(__context).spend()
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else partial(_narrow(_formatted), value.__self__, wrapped)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _steps(context).spend()
        _CHECKS[operator](left, right)
        return super().call_binop(context, operator, left, right)


class _Bound(NodeTransformer):
    """Wraps what a loop runs over in a counter, and `~` in a checked join."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the visitor's naming
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _GUARD, [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - the visitor's naming
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, _CONCAT, [], [], None, None, lineno=node.lineno)


def _steps(context: Context) -> Steps:
    found: Steps = context.parent[_BUDGET]
    return found


@jinja2.pass_context
def _guard(context: Context, values: Iterable[Any]) -> Iterator[Any]:
    steps = _steps(context)
    for value in values:
        steps.spend()
        yield value


def _concat(parts: list[Any]) -> str:
    texts = [text_of(part) for part in parts]
    _no_longer_than(sum(map(len, texts)))
    return "".join(texts)


def _formatted(_pattern: str, wrapped: Callable[..., str], *args: Any, **kwargs: Any) -> str:
    return wrapped(*args, **kwargs)


def _narrow(inner: Callable[..., Any]) -> Callable[..., Any]:
    """The same filter, for widths that a prompt can have."""

    def narrow(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, str):
            _check_widths(value)
        for number in (*args, *kwargs.values()):
            if isinstance(number, int) and abs(number) > 10_000:
                msg = f"a width of {number} is more than 10000"
                raise jinja2.TemplateRuntimeError(msg)
        return inner(value, *args, **kwargs)

    return narrow


def _check_widths(pattern: str) -> None:
    """`"%9999999999d"` and `"{:>9999999999}"` are short and make long texts."""
    digits = 0
    for char in pattern if len(pattern) < 100_000 and ("%" in pattern or "{" in pattern) else "":
        digits = digits + 1 if char.isdigit() else 0
        if digits > 4:
            msg = "a format with a width of more than four digits"
            raise jinja2.TemplateRuntimeError(msg)


def _no_longer_than(chars: int) -> None:
    if chars > MAX_CHARS:
        msg = f"the text grows past {MAX_CHARS} characters"
        raise TooLong(msg)


def _check_times(left: Any, right: Any) -> None:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, _SEQUENCES) and isinstance(other, int):
            _no_longer_than(len(one) * other)
    _check_big(left, right)


def _check_big(left: Any, right: Any) -> None:
    for number in (left, right):
        if isinstance(number, int) and number.bit_length() > 4096:
            msg = "a number of more than 4096 bits"
            raise jinja2.TemplateRuntimeError(msg)


def _check_power(left: Any, right: Any) -> None:
    _check_big(left, right)
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > 4096:
        msg = "a power of more than 4096 bits"
        raise jinja2.TemplateRuntimeError(msg)


def _check_plus(left: Any, right: Any) -> None:
    if isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
        _no_longer_than(len(left) + len(right))


def _check_percent(left: Any, _right: Any) -> None:
    if isinstance(left, str):
        _check_widths(left)


_CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "*": _check_times,
    "**": _check_power,
    "+": _check_plus,
    "%": _check_percent,
}
