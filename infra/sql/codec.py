"""Frozen dataclasses as JSON text and back: strict, because a field that is dropped in silence is a lie about money."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from jobs.errors import StorageCorrupt

T = TypeVar("T")
Decode = Callable[[Any], Any]


class _Unfit(Exception):
    """A stored value does not fit its type; the message says where."""


def encode(value: Any) -> str:
    """Canonical JSON: the same value is always the same text."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS).decode()


def storable(text: str) -> str:
    """What a database can keep of a text of unknown origin: it may hold what is no text."""
    return text.replace("\0", " ").encode(errors="replace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):  # orjson leaves named tuples to us
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def decode(kind: type[T], text: str | bytes) -> T:
    """The value that `encode` wrote. Raises StorageCorrupt for unknown or missing fields and wrong types."""
    try:
        value: T = _decoder(kind)(orjson.loads(text))  # type: ignore[arg-type]  # types are hashable
    except (orjson.JSONDecodeError, _Unfit) as error:
        raise StorageCorrupt(uri=f"A stored {getattr(kind, '__name__', kind)}", reason=str(error)) from error
    return value


@cache
def _decoder(kind: Any) -> Decode:  # noqa: PLR0911  # one line a kind of type
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin is Literal:
        return _one_of(args, f"one of {args}")
    if origin in {Union, types.UnionType}:
        return _union(args)
    if origin is tuple:
        return _tuple(args)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_decoder(args[1]))
    if is_dataclass(kind):
        return _dataclass(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return _named_tuple(kind)
    return _scalar(kind)


def _scalar(kind: type) -> Decode:
    def read(value: Any) -> Any:
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise _Unfit(f"{value!r} is not {kind.__name__}")
        return value

    return read


def _one_of(values: Sequence[Any], name: str) -> Decode:
    def read(value: Any) -> Any:
        if value not in values:
            raise _Unfit(f"{value!r} is not {name}")
        return value

    return read


def _enum(kind: type[Enum]) -> Decode:
    members = {member.value: member for member in kind}

    def read(value: Any) -> Any:
        if value not in members:
            raise _Unfit(f"{value!r} is not a {kind.__name__}")
        return members[value]

    return read


def _union(args: tuple[Any, ...]) -> Decode:
    """X | None only: other unions would have to guess."""
    (inner,) = [arg for arg in args if arg is not types.NoneType]
    read = _decoder(inner)
    return lambda value: None if value is None else read(value)


def _tuple(args: tuple[Any, ...]) -> Decode:
    if args[-1] is Ellipsis:
        item = _decoder(args[0])
        return lambda value: tuple(item(v) for v in _list(value))
    items = [_decoder(arg) for arg in args]
    return lambda value: tuple(read(v) for read, v in zip(items, _list(value, len(items)), strict=True))


def _named_tuple(kind: Any) -> Decode:
    items = [_decoder(hint) for hint in get_type_hints(kind).values()]
    return lambda value: kind(*(read(v) for read, v in zip(items, _list(value, len(items)), strict=True)))


def _list(value: Any, size: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (size is not None and len(value) != size):
        raise _Unfit(f"{value!r} is not a list" + (f" of {size}" if size is not None else ""))
    return value


def _mapping(item: Decode) -> Decode:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Unfit(f"{value!r} is not an object")
        return {key: item(v) for key, v in value.items()}

    return read


def _dataclass(kind: Any) -> Decode:
    hints = get_type_hints(kind)
    readers = {f.name: _decoder(hints[f.name]) for f in fields(kind)}
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Unfit(f"{value!r} is not an object")
        if unknown := value.keys() - readers.keys():
            raise _Unfit(f"unknown fields {', '.join(sorted(unknown))}")
        if missing := needed - value.keys():
            raise _Unfit(f"missing fields {', '.join(sorted(missing))}")
        return kind(**{name: readers[name](v) for name, v in value.items()})

    return read
