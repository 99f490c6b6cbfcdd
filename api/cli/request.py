"""The options that describe a job, and the request they make."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from jobs import request
from jobs.errors import BadInput
from jobs.model import Priority
from jobs.ports.intake import SubmitRequest
from jobs.request import SAMPLING, Parameter, sampling_of

__all__ = [
    "Duration", "engine_args", "job_options", "key_values", "request_of", "sampling_of", "sampling_options",
]  # fmt: skip

Command = TypeVar("Command", bound=Callable[..., Any])


class Share(click.ParamType[float | None]):
    """ "20%", "0.2" or "never"; as a share, or None."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        try:
            return request.share(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType[float]):
    """ "90s", "30m", "8h", "2d"; in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return request.duration_s(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def key_values(name: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, str]]:
    """A callback for a repeated option `KEY=VALUE`."""

    def parse(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        out: dict[str, str] = {}
        for value in values:
            key, sign, text = value.partition("=")
            if not sign or not key.strip():
                raise click.BadParameter(f"{value!r} is not {name}", ctx, param)
            if key.strip() in out:
                raise click.BadParameter(f"{key.strip()!r} is given twice", ctx, param)
            out[key.strip()] = text
        return out

    return parse


def _not_empty(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """An empty path would be the current folder: likelier a variable that is not set."""
    if not value.strip():
        raise click.BadParameter("it is empty", ctx, param)
    return value


def sampling_options(command: Command) -> Command:
    """One option a sampling parameter, by its OpenAI or vLLM name."""
    for parameter in reversed(SAMPLING):
        option = f"--{parameter.name.replace('_', '-')}"
        command = click.option(option, parameter.name, type=_kind(parameter), help=parameter.help)(command)
    return click.option("--stop", multiple=True, help="End the output at this text; repeatable.")(command)


def _kind(parameter: Parameter) -> Any:
    low, high = parameter.low, parameter.high
    if not parameter.whole:
        return click.FloatRange(low, high, min_open=parameter.above_low)
    return int if low is None else click.IntRange(min=int(low))


def job_options(command: Command) -> Command:
    """Everything that describes a job."""
    options = (
        click.argument("input_", metavar="INPUT", callback=_not_empty),
        click.option("--model", required=True, help="A model of the registry (nightmill models list)."),
        click.option(
            "--output",
            default="out",
            show_default=True,
            callback=_not_empty,
            help="Folder or s3:// URI; the job writes OUTPUT/JOB/.",
        ),
        click.option("--id", "id_column", help="Column of unique ids, kept as custom_id. Default: the row number."),
        click.option("--system", help="System message; may mention columns as {{ column }}."),
        click.option("--prompt", help="User message; mentions columns as {{ column }}."),
        click.option("--template", type=_FILE, help="YAML file with the messages, instead of --system and --prompt."),
        click.option("--schema", type=_FILE, help="JSON Schema that every output follows; adds typed columns."),
        click.option("--keep", help="Input columns to pass through, by commas. Default: all. '' for none."),
        click.option(
            "--vary",
            multiple=True,
            callback=key_values("COLUMN=VALUE,VALUE"),
            help="Repeat every row once a value: --vary lang=de,fr.",
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Only the first N rows."),
        click.option(
            "--order",
            type=click.Choice(["none", "input"]),
            default="none",
            show_default=True,
            help="Order of the result rows.",
        ),
        click.option("--sample", type=click.IntRange(min=1), help="Run a random sample of N rows first, then pause."),
        click.option("--sample-seed", type=int, default=0, show_default=True, help="Which sample."),
        click.option(
            "--pause-on",
            type=Share(),
            default="20%",
            show_default=True,
            help="Pause when more rows than this share are errors or truncated (counted after 200 rows), or never.",
        ),
        click.option(
            "--rows-per-task",
            type=click.IntRange(1, 65_536),
            help="Rows a task. Default: by the model's measured speed.",
        ),
        click.option(
            "--deadline", type=Duration(), help="Give up rows that are not done after this long: 90s, 30m, 8h, 2d."
        ),
        click.option(
            "--priority",
            type=click.Choice([str(p) for p in Priority]),
            default="normal",
            show_default=True,
            help="How urgent: a more urgent job goes first.",
        ),
        click.option("--tenant", help="Who pays. Default: the setting `tenant`."),
        click.option("--project", default="", help="Written into every posting."),
        click.option(
            "--tag",
            multiple=True,
            callback=key_values("KEY=VALUE"),
            help="Written into every posting; repeatable: --tag team=web.",
        ),
        click.option(
            "--engine-arg",
            multiple=True,
            callback=key_values("NAME=VALUE"),
            help="Passed to the engine; repeatable: --engine-arg max_num_seqs=64.",
        ),
        click.option("--idempotency-key", help="The same key again returns the job made before."),
    )
    command = sampling_options(command)
    for option in reversed(options):
        command = option(command)
    return command


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def request_of(options: Mapping[str, Any], *, tenant: str) -> SubmitRequest:
    """The request that these options describe; files are read here."""
    keep = options["keep"]
    asked = {
        **options,
        "input": _absolute(options["input_"]),
        "output": _absolute(options["output"]),
        "id": options["id_column"],
        "tags": options["tag"],
        "template": _text(options["template"]),
        "schema": _text(options["schema"]),
        "keep": None if keep is None else [name.strip() for name in keep.split(",") if name.strip()],
        "vary": {name: values.split(",") for name, values in options["vary"].items()},
        "pause_on": "never" if options["pause_on"] is None else options["pause_on"],
        "pool": options.get("pool_name"),
    }
    return request.request_of(
        asked,
        tenant=options["tenant"] or tenant,
        creator=f"cli:{getpass.getuser()}",
        key=options["idempotency_key"],
        engine_args=engine_args(options["engine_arg"]),
    )


def engine_args(given: Mapping[str, str]) -> dict[str, Any]:
    """Values as JSON where they are JSON (64, true, [1]), else as text."""
    out: dict[str, Any] = {}
    for name, text in given.items():
        try:
            out[name] = json.loads(text)
        except ValueError:
            out[name] = text
    return out


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).expanduser().absolute())


def _text(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(source=str(file), reason=f"it is not UTF-8 text (byte {error.start})") from error
