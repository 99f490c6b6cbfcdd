"""`nightmill`: the command group, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from api.cli.commands import LazyGroup, error_body, json_wanted
from api.cli.context import AppContext
from api.cli.exits import Exit, exit_for
from api.cli.output import print_json
from jobs.errors import NightmillError


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"nightmill {version('nightmill')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), help="Data directory (NIGHTMILL_HOME).")
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="Settings file (NIGHTMILL_CONFIG).")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="The release.")
@click.pass_context
def cli(ctx: click.Context, home: Path | None, config: Path | None) -> None:
    """Run very large LLM batch jobs on models of your own: every row once, in Parquet, priced."""
    ctx.ensure_object(AppContext)
    ctx.obj.home_option, ctx.obj.config_option = home, config


def run(argv: Sequence[str], app: AppContext | None = None) -> int:
    """Run one command line; the exit code. A command returns its own, or None for 0."""
    app = app or AppContext()
    as_json = json_wanted(argv)
    try:
        code = cli.main(args=list(argv), prog_name="nightmill", standalone_mode=False, obj=app)
        sys.stdout.flush()
        return int(code or 0)
    except NightmillError as error:
        return _refuse(exit_for(error), error.code, error.sentence, error.data, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return Exit.REFUSED
    except click.ClickException as error:
        return _refuse(Exit.REFUSED, "usage", _usage(error), None, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Stopped.", err=True)
        return Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):  # click makes a SystemExit of a closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter complains when it flushes at its end
        return Exit.PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the command line's edge: a person gets a sentence, the log the rest
        return _refuse(Exit.BUG, "bug", _unexpected(error, app), None, as_json=as_json)
    finally:
        app.close()


def _refuse(code: Exit, name: str, sentence: str, data: Any, *, as_json: bool) -> int:
    if as_json:
        print_json(error_body(name, sentence, data), err=True)
    else:
        click.echo(f"Error: {sentence}", err=True)
    return code


def _usage(error: click.ClickException) -> str:
    message = error.format_message()
    ctx = getattr(error, "ctx", None)
    return f"{message} See: {ctx.command_path} --help" if ctx else message


def _unexpected(error: Exception, app: AppContext) -> str:
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if app.log_file is None:
        traceback.print_exception(error)
        return f"Something unexpected happened ({words}). This is a fault in Nightmill; the traceback stands above."
    import structlog

    structlog.get_logger().critical("unexpected", exc_info=error, silent=True)
    return f"Something unexpected happened ({words}). This is a fault in Nightmill; the traceback is in {app.log_file}."


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
