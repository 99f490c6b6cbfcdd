"""`nightmill topics` and `nightmill dead`: what lies in the queue, and what went no further."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table
from jobs.errors import NotFound, Unavailable
from jobs.ports.queue import Outgoing, Queue, Record
from jobs.topics import dead_topic, group_of, ingress_group, ingress_topics, topics_of
from workers.letters import CODE, ORIGIN, OURS, PLACE, REASON

_READ_S = 10.0
_SHOWN = 80


@click.command()
@json_option
@pass_app
def topics(app: AppContext, *, as_json: bool) -> None:
    """List the topics of the declared pools and ingresses, and what waits in each."""
    prefix, broker = app.settings.topic_prefix, app.home.broker
    facts = [
        _topic_facts(broker, topic, group_of(prefix, pool.name))
        for pool in app.home.pools
        for topic in topics_of(prefix, [pool.name])
    ]
    facts += [
        _topic_facts(broker, topic, ingress_group(prefix))
        for topic in ingress_topics(prefix, app.settings.ingress_tenants)
    ]
    facts.append(_topic_facts(broker, dead_topic(prefix), None))
    for sentence in broker.disagreements([f["topic"] for f in facts]):
        click.echo(f"warning: {sentence}", err=True)
    if as_json:
        print_json(facts)
        return
    table(
        ("TOPIC", "PARTITIONS>", "MESSAGES>", "WAITING>"),
        [(f["topic"], f["partitions"], f["messages"], f["waiting"]) for f in facts],
    )


def _topic_facts(broker: Queue, topic: str, group: str | None) -> dict[str, Any]:
    """messages: still in the topic; waiting: not yet answered for by the pool's dispatchers or the ingress."""
    found = broker.facts(topic)
    if found is None:
        return {"topic": topic, "partitions": 0, "messages": None, "waiting": None}
    waiting = 0
    for number, end in found.log_end.items():
        at = broker.committed(group, topic, number) if group else None
        start = found.log_start.get(number, 0)
        waiting += end - max(start, at if at is not None else start)
    messages = sum(end - found.log_start.get(number, 0) for number, end in found.log_end.items())
    return {
        "topic": topic,
        "partitions": found.partitions,
        "messages": messages,
        "waiting": waiting if group else None,
    }


@click.group()
def dead() -> None:
    """Messages that nobody could read and submissions that were refused: list, show and replay them."""


@dead.command("list")
@json_option
@pass_app
def list_dead(app: AppContext, *, as_json: bool) -> None:
    """List the dead letters that the topic still holds."""
    letters = [_letter(record) for record in _records(app)]
    if as_json:
        print_json(letters)
        return
    table(
        ("LETTER", "FROM", "KEY", "REASON", "BYTES"),
        [(f["letter"], f["origin"], f["key"], f["reason"][:_SHOWN], f["text"][:_SHOWN]) for f in letters],
    )


@dead.command()
@click.argument("letter")
@json_option
@pass_app
def show(app: AppContext, *, letter: str, as_json: bool) -> None:
    """Show a dead letter whole. LETTER is PARTITION:OFFSET, as `nightmill dead list` shows it."""
    facts = _letter(_one(app, letter))
    if as_json:
        print_json(facts)
        return
    for name in ("letter", "origin", "place", "code", "reason", "key"):
        click.echo(f"{name:<8} {facts[name]}")
    for name, value in facts["headers"].items():
        click.echo(f"{'header':<8} {name}: {value}")
    click.echo(f"\n{facts['text']}")


@dead.command()
@click.argument("letter")
@json_option
@pass_app
def replay(app: AppContext, *, letter: str, as_json: bool) -> None:
    """Send a dead letter to the topic that it came from once more, as it is.

    Safe at any time: a message of a task that has moved on is dropped, and a submission is one job by its key. The
    letter stays where it is until the topic's retention ends.
    """
    record = _one(app, letter)
    origin = _header(record, ORIGIN)
    if not origin:
        raise NotFound(kind="topic to replay to in letter", name=letter, hint="It does not say where it came from.")
    headers = tuple(header for header in record.headers if header[0] not in OURS)
    place = app.home.broker.publish([Outgoing(topic=origin, key=record.key, value=record.value, headers=headers)])[0]
    if as_json:
        print_json({"letter": letter, "topic": place.topic, "partition": place.partition, "offset": place.offset})
    else:
        click.echo(f"{letter}: sent to {place.topic}, partition {place.partition}, offset {place.offset}")


def _records(app: AppContext) -> Iterator[Record]:
    """All that the topic held when it was asked, read by a group of its own."""
    broker, topic = app.home.broker, dead_topic(app.settings.topic_prefix)
    found = broker.facts(topic)
    left = sum(end - found.log_start.get(n, 0) for n, end in found.log_end.items()) if found else 0
    if not left:
        return
    consumer = broker.consumer(f"{topic}-reader-{secrets.token_hex(4)}", [topic])
    until = time.monotonic() + _READ_S
    try:
        while left > 0:
            if time.monotonic() > until:
                raise Unavailable(reason=f"topic {topic} was not read to its end in {_READ_S:.0f} s")
            for record in consumer.poll(0.5):
                yield record
                left -= 1
    finally:
        consumer.close()


def _one(app: AppContext, letter: str) -> Record:
    for record in _records(app):
        if _name(record) == letter:
            return record
    raise NotFound(kind="dead letter", name=letter, hint="List those there are: nightmill dead list")


def _name(record: Record) -> str:
    return f"{record.place.partition}:{record.place.offset}"


def _header(record: Record, name: str) -> str:
    return next((value.decode(errors="replace") for key, value in record.headers if key == name), "")


def _letter(record: Record) -> dict[str, Any]:
    text = record.value.decode(errors="backslashreplace")
    return {
        "letter": _name(record),
        "key": record.key.decode(errors="backslashreplace"),
        "origin": _header(record, ORIGIN),
        "place": _header(record, PLACE),
        "code": _header(record, CODE),
        "reason": _header(record, REASON),
        "text": text,
        "headers": {k: v.decode(errors="backslashreplace") for k, v in record.headers if k not in OURS},
        "json": _json_or_none(text),
    }


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
