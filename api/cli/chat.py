"""`nightmill chat`: a first try in the terminal, against a Nightmill that is up."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json
from api.cli.talking import Line, Message, Place
from jobs.errors import BadInput
from jobs.keys import KEY_BYTES, KeyDesk, KeyRequest
from jobs.pricing import amount, show
from jobs.tenancy import Scope

_KEY_S = 86_400.0
"""A key that is not ended, because its process was killed, ends by itself."""


@click.command()
@click.argument("message", required=False)
@click.option("--model", help="Which model. Default: the first one that takes requests.")
@click.option("--system", help="A first message that says how to answer.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer.")
@click.option("--temperature", type=click.FloatRange(0, 2), help="0 for the likeliest answer.")
@click.option("--url", help="Of an API elsewhere, without /v1. Default: of this data directory's Nightmill.")
@click.option("--key", envvar="NIGHTMILL_API_KEY", help="An API key. Default: one of this data directory, for a while.")
@json_option
@pass_app
def chat(
    app: AppContext,
    *,
    message: str | None,
    model: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Talk to a model. With MESSAGE, or with a text on stdin: one answer. Ctrl-C ends an answer, Ctrl-D the talk."""
    if url is not None and key is None:
        raise BadInput(source="--key", reason="an API elsewhere needs one of its keys")
    if message is None and not sys.stdin.isatty():
        message = sys.stdin.read()
    sampling = {"max_tokens": max_tokens, "temperature": temperature}
    with _place(app, url, key) as place:
        line = Line(place, lambda why: click.echo(f"{why} Waiting …", err=True))
        talk = Talk(
            line=line,
            model=model or _first_model(app, line, here=url is None),
            sampling={name: value for name, value in sampling.items() if value is not None},
            messages=[{"role": "system", "content": system}] if system else [],
            cost=_cost(app) if url is None else lambda *_: None,
        )
        if message is not None or as_json:
            _once(talk, message or "", as_json=as_json)
        else:
            _again_and_again(talk)


@dataclass(kw_only=True)
class Talk:
    """A conversation so far. cost: of a model's usage, in words, None where it is not known."""

    line: Line
    model: str
    sampling: dict[str, Any]
    messages: list[Message] = field(default_factory=list)
    cost: Callable[[str, dict[str, Any]], str | None]

    def ask(self, text: str, say: Callable[[str], object]) -> dict[str, Any]:
        """What came of it. Ctrl-C ends the answer; what was said until then stays part of the talk."""
        self.messages.append({"role": "user", "content": text})
        found: dict[str, Any] = {"id": "", "model": self.model, "answer": "", "finish_reason": "stopped", "usage": None}
        try:
            with closing(self.line.events(self.model, self.messages, self.sampling)) as events:
                for event in events:
                    _take(event, found, say)
        except KeyboardInterrupt:
            pass
        except BaseException:
            self.messages.pop()
            raise
        self.messages.append({"role": "assistant", "content": found["answer"]})
        usage = found["usage"]
        return {**found, "cost": None if usage is None else self.cost(self.model, usage)}


def _take(event: dict[str, Any], found: dict[str, Any], say: Callable[[str], object]) -> None:
    found["id"] = event["id"]
    found["usage"] = event.get("usage") or found["usage"]
    for choice in event["choices"]:
        if text := choice["delta"].get("content"):
            found["answer"] += text
            say(text)
        found["finish_reason"] = choice["finish_reason"] or found["finish_reason"]


def _once(talk: Talk, message: str, *, as_json: bool) -> None:
    if not message.strip():
        raise BadInput(source="MESSAGE", reason="there is nothing to answer")
    found = talk.ask(message, lambda text: None if as_json else click.echo(text, nl=False))
    if as_json:
        print_json(found)
    else:
        _foot(found)


def _again_and_again(talk: Talk) -> None:
    click.echo(f"{talk.model}. Ctrl-C ends an answer, Ctrl-D the talk.", err=True)
    while (text := _typed()) is not None:
        if text.strip():
            _foot(talk.ask(text, lambda piece: click.echo(piece, nl=False)))


def _typed() -> str | None:
    """A line that was typed, with editing; None at the end."""
    import readline  # noqa: F401 - `input` has arrows and a history with it

    try:
        return input("> ")
    except (EOFError, KeyboardInterrupt):
        click.echo()
        return None


def _foot(found: dict[str, Any]) -> None:
    usage = found["usage"]
    if usage is None:
        click.echo("\n(stopped; what was generated is charged)", err=True)
        return
    click.echo()
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    said = f"{usage['prompt_tokens']} tokens in ({cached} cached), {usage['completion_tokens']} out"
    cut = ", cut by its limit" if found["finish_reason"] == "length" else ""
    cost = f", {found['cost']}" if found["cost"] else ""
    click.echo(f"({said}{cut}{cost})", err=True)


# ---- where --------------------------------------------------------------------------------------


@contextmanager
def _place(app: AppContext, url: str | None, key: str | None) -> Iterator[Place]:
    """Where to ask. Without a key: one of this data directory's own, which ends with the talk."""
    if key is not None:
        yield Place(url=_url_there(url) if url else _url_here(app), key=_usable(key))
        return
    here = _url_here(app)
    Line(Place(url=here, key=""), lambda _: None).check()  # nothing is made for a service that is not there
    store, settings = app.home.store, app.settings
    desk = KeyDesk(store=store, now=store.now, actor=app.actor)
    asked = KeyRequest(name="chat", scopes=frozenset({Scope.INFERENCE, Scope.JOBS_READ}), expires_s=_KEY_S)
    made = desk.make(app.home.ids.new("key_"), secrets.token_bytes(KEY_BYTES), asked, tenant=settings.tenant)
    try:
        yield Place(url=here, key=made.text)
    finally:
        desk.revoke(made.record.id)


def _usable(key: str) -> str:
    """As a header may have it. Raises BadInput."""
    key = key.strip()  # a file's last line, say
    if not (key and key.isascii() and key.isprintable()):
        raise BadInput(source="--key", reason="this is no API key; one looks like nm_…")
    return key


def _url_there(url: str) -> str:
    """Raises BadInput."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise BadInput(source="--url", reason=f"{url!r} is no address; one looks like http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1")


def _url_here(app: AppContext) -> str:
    """Of the `nightmill up` of this data directory, or where the settings have the API."""
    from infra.standing import load_address

    up = app.home.locks.holder_of("up") is not None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(app.settings.api_host, app.settings.api_host)  # noqa: S104
    host = f"[{host}]" if ":" in host else host
    return (load_address(app.settings.home) if up else None) or f"http://{host}:{app.settings.api_port}"


def _first_model(app: AppContext, line: Line, *, here: bool) -> str:
    names = line.models()
    if here:
        talkers = {pool.model for pool in app.home.pools if pool.takes_requests}
        names = [name for name in names if name in talkers and app.home.registry.find(name).kind == "chat"]
    if not names:
        raise BadInput(source="--model", reason="no model for chats takes requests here; see: nightmill pools")
    return names[0]


def _cost(app: AppContext) -> Callable[[str, dict[str, Any]], str | None]:
    """By the price book of this data directory."""

    def of(model: str, usage: dict[str, Any]) -> str | None:
        store = app.home.store
        seen = {alias.alias: alias.model for alias in store.aliases(app.settings.tenant)}
        price = store.price(model) or store.price(seen.get(model, model))
        if price is None:
            return None
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        pico = amount(
            price,
            input_tokens=usage["prompt_tokens"] - cached,
            cached_tokens=cached,
            output_tokens=usage["completion_tokens"],
        )
        return show(pico, price.currency)

    return of
