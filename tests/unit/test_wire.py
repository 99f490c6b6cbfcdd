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
