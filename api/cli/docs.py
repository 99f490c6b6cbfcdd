"""`python -m api.cli.docs`: write docs/cli.md from the commands themselves; a test holds that it is current."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from api.cli.commands import COMMANDS
from api.cli.exits import Exit
from api.cli.main import cli

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

_HEAD = """\
# The command line

<!-- Written by `python -m api.cli.docs`; change the commands' own help instead. -->
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_command(cli, "nightmill", level=2), *_exit_codes()])


def _command(command: click.Command, path: str, level: int) -> Iterator[str]:
    ctx = click.Context(command, info_name=path)
    yield f"{'#' * level} `{path}`\n"
    yield f"```\n{' '.join([path, *command.collect_usage_pieces(ctx)])}\n```\n"
    yield inspect.cleandoc(command.help or "").replace("\b\n", "") + "\n"
    yield from _parameters(command, ctx)
    if isinstance(command, click.Group):
        yield from _list(command, path)
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from _command(child, f"{path} {name}", level + 1 if level == 2 else level)


def _parameters(command: click.Command, ctx: click.Context) -> Iterator[str]:
    options = [p for p in command.get_params(ctx) if isinstance(p, click.Option) and "--help" not in p.opts]
    records = [record for option in options if (record := option.get_help_record(ctx))]
    if records:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{_escaped(name)}` | {_escaped(text)} |" for name, text in records)
        yield ""


def _list(group: click.Group, path: str) -> Iterator[str]:
    if path == "nightmill":
        rows = [(name, lazy.summary) for name, lazy in COMMANDS.items()]
    else:
        rows = [(name, child.get_short_help_str(limit=200)) for name, child in sorted(group.commands.items())]
    yield "| command | what it does |\n|---|---|"
    yield from (f"| [`{path} {name}`](#{f'{path} {name}'.replace(' ', '-')}) | {summary} |" for name, summary in rows)
    yield ""


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | meaning |\n|---|---|"
    yield from (f"| {code.value} | {_escaped(code.meaning)} |" for code in Exit)
    yield '\nWith `--json` an error is one JSON object on stderr: `{"error": {"code", "message", "data"}}`.\n'


def _escaped(text: str) -> str:
    """For a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
