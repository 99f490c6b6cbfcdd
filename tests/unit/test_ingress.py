"""workers/ingress.py: from a message to a job or a dead letter, over a broker in memory."""

import json

import pytest

from infra.clocks import ManualClock
from infra.data.submission import read_submission
from jobs.errors import DatabaseUnavailable, KeyReused, NotFound, Refused, StorageFull
from jobs.ports.queue import Outgoing
from jobs.topics import ingress_topics
from tests.support.topics import MemoryQueue
from tests.support.values import a_job
from workers.ingress import Ingress, IngressPolicy
from workers.letters import CODE, ORIGIN, PLACE, REASON

pytestmark = pytest.mark.unit

ACME, GLOBEX, DEAD = "nightmill.submit.acme", "nightmill.submit.globex", "nightmill.dead"
DEADLINE = "Give up rows that are not done after this long: 90s, 8h, 2d or seconds."
ASKED = {"input": "s3://in/a.parquet", "model": "m", "output": "s3://out/", "prompt": "{{ x }}"}


class Door:
    """An ingress for two tenants; `submitted` are the requests that became jobs. fails: raised by the next submits."""

    def __init__(self, **policy):
        self.broker, self.clock, self.submitted, self.fails = MemoryQueue(), ManualClock(), [], []
        topics = ingress_topics("nightmill", ["acme", "globex"])
        self.ingress = Ingress(
            broker=self.broker,
            clock=self.clock,
            read=read_submission,
            submit=self.submit,
            policy=IngressPolicy(topics=topics, group="nightmill.submit", dead_topic=DEAD, **policy),
        )
        self.ingress.poll_step()

    def submit(self, request):
        if self.fails:
            raise self.fails.pop(0)
        self.submitted.append(request)
        return a_job(id=f"job-{len(self.submitted)}")

    def send(self, asked=None, key=b"k", topic=ACME, value=None, **more):
        value = json.dumps({**ASKED, **(asked or {})}).encode() if value is None else value
        self.broker.publish([Outgoing(topic=topic, key=key, value=value, **more)])

    def round(self, times=1):
        for _ in range(times):
            self.ingress.poll_step()
            self.ingress.submit_step(wait_s=0)
            self.ingress.poll_step()

    def committed(self, topic=ACME):
        return self.broker.committed("nightmill.submit", topic, 0)

    def letters(self):
        return [(letter.key, letter.value, dict(letter.headers)) for letter in self.broker.topics[DEAD]]

    def reasons(self):
        return [(headers[CODE].decode(), headers[REASON].decode()) for _, _, headers in self.letters()]


def test_a_message_becomes_a_job_of_the_topic_s_tenant_under_its_key():
    door = Door()
    door.send({"priority": "high", "max_tokens": 8})
    door.send(topic=GLOBEX, key="schlüssel".encode())
    door.round(2)
    found = {(r.tenant, r.idempotency_key, r.creator, r.priority, tuple(r.sampling.items())) for r in door.submitted}
    assert found == {
        ("acme", "k", f"ingress:{ACME}", "high", (("max_tokens", 8),)),
        ("globex", "schlüssel", f"ingress:{GLOBEX}", "normal", ()),
    }
    assert (door.committed(), door.committed(GLOBEX), door.letters()) == (1, 1, [])
    assert door.ingress.counts == {"taken": 2}


def test_an_offset_is_finished_only_when_the_job_is_written():
    door = Door()
    door.send()
    door.ingress.poll_step()
    door.ingress.poll_step()
    assert (door.committed(), door.submitted) == (None, [])
    door.ingress.submit_step(wait_s=0)
    door.ingress.poll_step()
    assert (door.committed(), len(door.submitted)) == (1, 1)


@pytest.mark.parametrize("away", [DatabaseUnavailable(where="it", reason="gone"), StorageFull(where="it")])
def test_a_backend_that_is_away_delays_a_submission_and_never_refuses_it(away):
    door = Door()
    door.fails = [away] * 3
    door.send()
    door.round(3)
    assert (door.committed(), door.letters(), door.clock.monotonic()) == (None, [], 3.0)
    door.round()
    assert (door.committed(), len(door.submitted), door.letters()) == (1, 1, [])


def test_one_that_waits_does_not_hold_up_the_next():
    door = Door()
    door.fails = [DatabaseUnavailable(where="it", reason="gone")]
    door.send(key=b"first")
    door.send(key=b"second")
    door.round(2)
    assert ([r.idempotency_key for r in door.submitted], door.committed()) == (["second"], None)
    door.round()
    assert ([r.idempotency_key for r in door.submitted], door.committed()) == (["second", "first"], 2)


def test_of_one_key_the_first_message_counts_however_long_it_waits():
    door = Door()
    door.fails = [DatabaseUnavailable(where="it", reason="gone")]
    for limit, key in [(1, b"k"), (2, b"k"), (3, b"other")]:
        door.send({"limit": limit}, key=key)
    door.ingress.poll_step()
    door.round(4)
    assert [request.limit for request in door.submitted] == [3, 1, 2]


def test_one_key_is_dealt_with_by_one_thread_at_a_time_and_others_side_by_side():
    door = Door()
    for key in [b"k", b"k", b"other"]:
        door.send(key=key)
    door.ingress.poll_step()
    hand = door.ingress._in_hand
    first, second = hand.get(0), hand.get(0)
    assert ((first.key, second.key), hand.get(0), len(hand)) == ((b"k", b"other"), None, 3)
    hand.done(first)
    assert (hand.get(0).place.offset, hand.get(0), len(hand)) == (1, None, 2)


def test_what_is_refused_goes_to_the_dead_letters_with_its_bytes_its_place_and_the_reason():
    door = Door()
    door.fails = [NotFound(kind="model", name="m", hint="Known: fake.")]
    door.send()
    door.send(value=b"\xff", headers=(("traceparent", b"00-1"), (REASON, b"not yours to say")))
    door.round(2)
    first, second = door.letters()
    where = {ORIGIN: ACME.encode()}
    assert first == (
        b"k",
        json.dumps(ASKED).encode(),
        {**where, PLACE: b"0:0", CODE: b"not_found", REASON: b"There is no model named m. Known: fake."},
    )
    assert second[:2] == (b"k", b"\xff")
    assert second[2] == {
        **where,
        PLACE: b"0:1",
        CODE: b"bad_input",
        REASON: second[2][REASON],
        "traceparent": b"00-1",
    }
    assert second[2][REASON].startswith(b"the message's value: it is not JSON")
    assert (door.committed(), door.ingress.counts) == (2, {"not_found": 1, "bad_input": 1})


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"tenant": "globex"}, "the submission: the field tenant is not known."),
        ({"promt": "x"}, "the submission: the field promt is not known, did you mean prompt?"),
        ({"model": 3}, 'the submission: model: 3 is not of type "string".'),
        ({"limit": 0}, "the submission: limit: 0 is less than the minimum of 1."),
        ({"output": None}, 'the submission: "output" is a required property.'),
        ({"project": "a\0b"}, r'the submission: project: "a\u0000b" does not match "^[^\u0000-\u001F\u007F]*$".'),
        (
            {"deadline": "soon"},
            f"the submission: deadline: it does not fit: {DEADLINE}",
        ),
    ],
)
def test_a_submission_that_does_not_fit_the_schema_is_refused_by_name(asked, sentence):
    door = Door()
    door.send(asked)
    door.round()
    assert (door.reasons(), door.submitted) == ([("bad_input", sentence)], [])


@pytest.mark.parametrize("key", [b"", b"\xff", b"a\0b", b"x" * 256])
def test_a_message_without_a_key_that_can_be_kept_is_refused(key):
    door = Door()
    door.send(key=key)
    door.round()
    assert [(code, reason.startswith("the message's key: ")) for code, reason in door.reasons()] == [
        ("bad_input", True)
    ]
    assert door.letters()[0][0] == key


@pytest.mark.parametrize(
    ("asked", "setting"),
    [({"input": "file:///etc/passwd"}, "ingress_inputs"), ({"output": "/srv/out"}, "ingress_outputs")],
)
def test_local_files_are_refused_unless_a_setting_allows_them(asked, setting):
    door = Door()
    door.send(asked)
    door.round()
    (found,) = door.reasons()
    assert (found[0], setting in found[1], door.submitted) == ("storage_refused", True, [])
    door = Door(inputs=("file:///etc",), outputs=("s3://", "file:///srv/out"))
    door.send({"input": "file:///etc/passwd", **asked})
    door.round()
    assert (len(door.submitted), door.letters()) == (1, [])


def test_a_key_that_comes_again_with_another_request_is_refused():
    door = Door()
    door.fails = [KeyReused(key="k", job="job-1", fields="prompt")]
    door.send()
    door.round()
    assert [code for code, _ in door.reasons()] == ["idempotency_key_reused"]


def test_a_fault_of_ours_costs_one_message_and_not_the_process():
    door = Door()
    door.fails = [ZeroDivisionError("oops")]
    door.send()
    door.send(key=b"next")
    door.round(2)
    assert (door.reasons()[0][0], len(door.submitted), door.committed()) == ("bug", 1, 2)


@pytest.mark.parametrize("fault", [None, Refused(reason="no right to write")])
def test_a_dead_letter_that_cannot_be_written_is_waited_for(fault):
    door = Door()
    send, door.broker.away = door.broker.publish, 0
    door.send(value=b"?")
    if fault is None:
        door.broker.away = 1
    else:
        door.broker.publish = lambda messages: (_ for _ in ()).throw(fault)
    door.round()
    assert (door.committed(), door.letters()) == (None, [])
    door.broker.publish = send
    door.round()
    assert (door.committed(), len(door.letters())) == (1, 1)


def test_one_that_the_broker_finds_too_large_now_is_cut():
    class TooLarge(Refused):
        """{reason}."""

        code = "message_too_large"

    door = Door()
    publish = door.broker.publish

    def limited(messages):
        if len(messages[0].value) > 100_000:
            raise TooLarge(reason="it is")
        return publish(messages)

    door.send(value=b"?" * 200_000)
    door.broker.publish = limited
    door.round()
    assert [(key, len(value), sorted(headers)) for key, value, headers in door.letters()] == [
        (b"k", 65_536, sorted([ORIGIN, PLACE, CODE, REASON]))
    ]


def test_no_more_is_taken_than_can_be_held():
    door = Door(in_hand=2)
    for number in range(5):
        door.send(key=b"%d" % number)
    for _ in range(3):
        door.ingress.poll_step()
    assert door.ingress._consumer.position[ACME] == 2
    door.round(5)
    assert ([r.idempotency_key for r in door.submitted], door.committed()) == (["0", "1", "2", "3", "4"], 5)


def test_a_broker_that_refuses_is_asked_again():
    door = Door()
    consumer = door.ingress._consumer
    door.ingress._consumer = None
    door.broker.consumer = lambda group, topics: (_ for _ in ()).throw(Refused(reason="no right to read"))
    door.ingress.poll_step()
    assert door.clock.monotonic() == 1.0
    door.broker.consumer = lambda group, topics: consumer
    door.send()
    door.round()
    assert door.committed() == 1
