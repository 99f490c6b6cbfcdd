"""Printing: tables for people, the same cells unadorned for pipes, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any

import click


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table. A column whose name ends in ">" is aligned right. Piped: padded columns, nothing cut."""
    cells = [[_cell(value) for value in row] for row in rows]
    names = [name.removesuffix(">") for name in columns]
    right = [name.endswith(">") for name in columns]
    if sys.stdout.isatty():
        _rich_table(names, right, cells)
    else:
        _plain_table(names, right, cells)


def _rich_table(names: Sequence[str], right: Sequence[bool], cells: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, is_right in zip(names, right, strict=True):
        out.add_column(name, justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        out.add_row(*(Text(cell) for cell in row))  # Text: a tenant's [brackets] are no markup
    Console().print(out)


def _plain_table(names: Sequence[str], right: Sequence[bool], cells: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    for row in [names, *cells]:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        click.echo("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else " ".join(str(value).splitlines())


def print_json(value: object, *, err: bool = False) -> None:
    """One JSON value on a line of its own; err: on stderr."""
    click.echo(json.dumps(plain(value), ensure_ascii=False), err=err)


def tell(sentence: str, *, as_json: bool, **facts: object) -> None:
    """The sentence for a person, or the facts for a machine; one line, written at once."""
    if as_json:
        print_json(facts)
    else:
        click.echo(sentence)
    sys.stdout.flush()


def plain(value: object) -> Any:
    """Dataclasses as objects, mappings and sequences as such, anything else that JSON has not as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def when(seconds: float | None) -> str | None:
    """Seconds since the epoch as "2026-11-29 15:04:05Z"."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Gives a function that takes (done, total) in bytes; None where nobody would see a bar."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
