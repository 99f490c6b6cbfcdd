"""workers/wire.py: a message as bytes, and bytes that are none."""

import json

import pytest

from jobs.model import Priority
from tests.support.values import a_message
from workers import wire
from workers.wire import Unreadable

pytestmark = pytest.mark.unit

BODY = {"v": 1, "task": "j.0", "epoch": 1, "ticket": "ticket-1", "pool": "pool"}


def body(**changes):
    return json.dumps({**BODY, **changes}).encode()


def test_a_message_lies_in_its_pools_topic_under_its_tasks_key():
    sent = wire.encode("nightmill", a_message(priority=Priority.HIGH))
    value = b'{"v":1,"task":"j.0","epoch":1,"ticket":"ticket-1","pool":"pool"}'
    assert (sent.topic, sent.key, sent.value) == ("nightmill.pool.high", b"j.0", value)


def test_what_was_written_is_read_back():
    message = a_message(priority=Priority.CRITICAL, epoch=7)
    assert wire.decode(wire.encode("x", message).value, Priority.CRITICAL) == message


def test_fields_added_by_a_later_version_are_ignored():
    assert wire.decode(body(trace="abc"), Priority.NORMAL) == a_message()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff\xfe", id="not text"),
        pytest.param(b"hello", id="not JSON"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"17", id="a number"),
        pytest.param(b"{}", id="an empty object"),
        pytest.param(b"[" * 100_000, id="nested without end"),
        pytest.param(body(v=2), id="another version"),
        pytest.param(body(epoch="1"), id="an epoch that is text"),
        pytest.param(body(epoch=True), id="an epoch that is a flag"),
        pytest.param(body(epoch=-1), id="a negative epoch"),
        pytest.param(body(epoch=2**63), id="an epoch past 64 bits"),
        pytest.param(body(task=5), id="a task that is a number"),
        pytest.param(body(task={}), id="a task that is an object"),
        pytest.param(body(ticket=None), id="no ticket"),
        pytest.param(body(task="j.0\x00"), id="a NUL"),
        pytest.param(body(pool="\ud800"), id="half a surrogate pair"),
    ],
)
def test_bytes_that_no_database_should_see_are_unreadable(value):
    with pytest.raises(Unreadable):
        wire.decode(value, Priority.NORMAL)


def test_an_unreadable_message_names_its_faults():
    with pytest.raises(Unreadable, match=r"^epoch 'x', ticket 5$"):
        wire.decode(body(epoch="x", ticket=5), Priority.NORMAL)


# ---- trace context ----------------------------------------------------------------------------------

TRACE = wire.Trace(trace_id="4bf92f3577b34da6a3ce929d0e0e4736", span_id="00f067aa0ba902b7")
PLAIN = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_message_carries_its_trace_in_a_header():
    assert wire.encode("n", a_message(), TRACE).headers == (("traceparent", PLAIN),)
    assert wire.encode("n", a_message()).headers == ()


@pytest.mark.parametrize("trace", [TRACE, TRACE.evolve(sampled=False)])
def test_a_trace_is_read_back(trace):
    headers = (("other", b"x"), *wire.encode("n", a_message(), trace).headers)
    assert wire.trace_of(headers) == trace


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"cc" + PLAIN[2:], id="a later version"),
        pytest.param(b"cc" + PLAIN[2:] + b"-what-comes-then", id="a later version with more"),
        pytest.param(PLAIN[:-2] + b"ff", id="flags nobody knows yet"),
    ],
)
def test_what_is_known_of_a_later_version_is_read(value):
    assert wire.trace_of([("Traceparent", value)]) == TRACE


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([], id="none"),
        pytest.param([("traceparent", PLAIN)] * 2, id="two"),
        pytest.param([("traceparent", b"")], id="nothing in it"),
        pytest.param([("traceparent", b"ff" + PLAIN[2:])], id="a version that cannot be"),
        pytest.param([("traceparent", PLAIN.upper())], id="capitals"),
        pytest.param([("traceparent", PLAIN + b"-more")], id="more than version 00 has"),
        pytest.param([("traceparent", PLAIN + b"\n")], id="a line end"),
        pytest.param([("traceparent", b"00-" + b"0" * 32 + PLAIN[35:])], id="no trace"),
        pytest.param([("traceparent", PLAIN[:36] + b"0" * 16 + b"-01")], id="no span"),
        pytest.param([("traceparent", b"\xff\xfe")], id="not text"),
    ],
)
def test_a_trace_that_is_none_costs_the_message_nothing(headers):
    assert wire.trace_of(headers) is None


def test_the_time_of_a_release_is_told_in_a_header_to_the_millisecond():
    sent = wire.encode("nightmill", a_message(), released_at=1764440000.12345)
    assert wire.released_of(sent.headers) == 1764440000.123
    assert wire.released_of(wire.encode("nightmill", a_message()).headers) is None


@pytest.mark.parametrize("value", [b"", b"soon", b"-1", b"nan", b"1e9", b"9" * 400, b"1."])
def test_a_time_of_release_that_cannot_be_one_is_not_told(value):
    assert wire.released_of([(wire.RELEASED, value)]) is None
