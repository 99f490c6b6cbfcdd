"""Apache Kafka behind the queue port: broker killed, topics wiped, members coming and going, logins refused."""

import gc
import socket
import threading
import time

import pytest
import structlog.testing

from infra.queue.kafka_faults import BrokerRefused, BrokerUnavailable, MessageTooLarge
from infra.queue.kafka_policy import Security
from jobs.errors import NotFound
from jobs.ports.queue import Outgoing
from tests.support.kafka import PASSWORD, USER, eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),  # see no_litter
]

T = "nightmill.batch.normal"
P0 = (T, 0)


def a_message(value=b"v", key=b"k", topic=T):
    return Outgoing(topic=topic, key=key, value=value)


@pytest.fixture(autouse=True)
def no_litter():
    """kafka-python 3.0 leaves sockets of failed connections to the garbage collector: here, not in another test."""
    yield
    gc.collect()


@pytest.fixture
def opened(kafka):
    """Opens queues with other policies, and closes them."""
    queues = []

    def make(**changes):
        queues.append(kafka.open(**changes))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()
    if kafka.service.pid is not None:
        kafka.clear()


@pytest.fixture
def queue(opened):
    return opened()


@pytest.fixture
def broken(kafka):
    """The broker, which a test may kill; it runs again afterwards."""
    yield kafka.service
    kafka.service.start()


def consumed(consumer, count):
    records = []
    eventually(lambda: records.extend(consumer.poll(0.2)) or len(records) >= count)
    return records + consumer.poll(0.5)


# ---- the broker dies --------------------------------------------------------------------------------


def test_a_broker_killed_while_publishing_loses_nothing_and_doubles_nothing(opened, broken, capsys):
    queue = opened(publish_s=90.0)
    queue.ensure_topics([T], partitions=3)
    places, halfway = [], threading.Event()

    def publish():
        for batch in range(50):
            messages = [a_message(b"%d" % n, key=b"%d" % n) for n in range(10 * batch, 10 * batch + 10)]
            places.extend(queue.publish(messages))
            if batch == 10:
                halfway.set()

    publisher = threading.Thread(target=publish)
    publisher.start()
    assert halfway.wait(30)
    broken.kill()
    time.sleep(1.0)
    began, before = time.monotonic(), len(places)
    broken.start()
    ready_s = time.monotonic() - began
    assert eventually(lambda: len(places) > before)
    back_s = time.monotonic() - began
    publisher.join(60)
    assert not publisher.is_alive()
    assert sum(queue.facts(T).log_end.values()) == 500
    consumer = queue.consumer("g", [T])
    records = consumed(consumer, 500)
    consumer.close()
    assert sorted(int(r.value) for r in records) == list(range(500))
    assert {(r.place.partition, r.place.offset) for r in records} == {(p.partition, p.offset) for p in places}
    with capsys.disabled():
        print(f"\n  broker ready {ready_s:.1f} s after its restart, publishing again after {back_s:.1f} s")


def test_while_the_broker_is_away_nothing_fails_and_then_everything_goes_on(opened, broken):
    queue = opened(publish_s=3.0, answer_s=2.0)
    queue.ensure_topics([T])
    queue.publish([a_message(b"1"), a_message(b"2")])
    consumer = queue.consumer("g", [T])
    assert len(consumed(consumer, 2)) == 2
    consumer.commit({P0: 1})
    broken.kill()

    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=r"Kafka at 127\.0\.0\.1:\d+ does not answer"):
        queue.publish([a_message(b"lost?")])
    assert time.monotonic() - began < 8.0
    with pytest.raises(BrokerUnavailable):
        queue.facts(T)
    assert consumer.poll(0.2) == []
    consumer.commit({P0: 2})
    assert consumer.poll(0.2) == []

    broken.start()

    def published():
        try:
            return queue.publish([a_message(b"3")])
        except BrokerUnavailable:
            return None

    (place,) = eventually(published)
    assert place.topic_id == queue.facts(T).topic_id
    assert b"3" in [record.value for record in consumed(consumer, 1)]
    assert eventually(lambda: consumer.poll(0.05) == [] and queue.committed("g", T, 0) == 2)
    consumer.close()


def test_a_consumer_made_while_the_broker_is_away_joins_when_it_is_back(opened, broken):
    queue = opened(answer_s=1.0)
    queue.ensure_topics([T])
    queue.publish([a_message()])
    broken.kill()
    consumer = queue.consumer("g", [T])
    assert (consumer.poll(0.1), consumer.assigned()) == ([], frozenset())
    consumer.commit({P0: 1})
    broken.start()
    assert len(consumed(consumer, 1)) == 1
    consumer.close()


# ---- topics -----------------------------------------------------------------------------------------


def test_a_topic_wiped_while_its_consumer_is_paused_is_read_from_its_new_start(queue):
    queue.ensure_topics([T])
    queue.publish([a_message(b"old-%d" % n) for n in range(3)])
    consumer = queue.consumer("g", [T])
    assert len(consumed(consumer, 3)) == 3
    consumer.pause([P0])
    queue.publish([a_message(b"old-3")])
    consumer.poll(0.3)
    queue.delete_topic(T)
    queue.ensure_topics([T])
    queue.publish([a_message(b"new-%d" % n) for n in range(6)])
    consumer.poll(0.3)
    consumer.resume([P0])
    new, records = queue.facts(T).topic_id, []
    eventually(lambda: records.extend(r for r in consumer.poll(0.1) if r.place.topic_id == new) or len(records) >= 6)
    consumer.close()
    assert [record.value for record in records] == [b"new-%d" % n for n in range(6)]


def test_a_message_for_a_topic_that_was_deleted_is_refused_by_name_in_time(opened):
    queue = opened(publish_s=3.0)
    queue.ensure_topics([T])
    queue.publish([a_message()])
    queue.delete_topic(T)
    with pytest.raises(NotFound, match=T):
        queue.publish([a_message()])
    queue.ensure_topics([T])
    assert queue.publish([a_message()])[0].offset == 0


def test_what_retention_took_is_seen_and_passed_over(opened):
    queue = opened(retention_s=1.0)
    queue.ensure_topics([T])
    queue.publish([a_message(), a_message()])
    assert eventually(lambda: queue.facts(T).log_start == {0: 2})
    (place,) = queue.publish([a_message(b"young")])
    consumer = queue.consumer("g", [T])
    records = consumed(consumer, 1)
    consumer.close()
    assert place.offset == 2
    assert [record.place.offset for record in records] in ([2], [])  # [] on a machine so slow that it is gone too


def test_a_topic_that_disagrees_is_reported_and_left_alone(opened):
    opened(partitions=2, retention_s=3600.0).ensure_topics([T])
    queue = opened(partitions=3)
    with structlog.testing.capture_logs() as logs:
        queue.ensure_topics([T, "another"])
    said = [(e["topic"], e["what"]) for e in logs if e["event"] == "topic_disagrees"]
    assert said == [(T, "partitions"), (T, "retention.ms")]
    assert queue.disagreements([T, "another", "nobody"]) == [
        f"Topic {T} has partitions 2 instead of 3.",
        f"Topic {T} has retention.ms 3600000 instead of 86400000.",
    ]
    assert (queue.facts(T).partitions, queue.facts("another").partitions) == (2, 3)


def test_a_message_that_is_too_large_is_refused_and_costs_its_neighbours_nothing(queue):
    queue.ensure_topics([T])
    with pytest.raises(MessageTooLarge, match=T):
        queue.publish([a_message(bytes(2 << 20))])
    assert queue.publish([a_message()])[0].offset == 0


def test_a_topic_name_that_kafka_does_not_take_is_refused(queue):
    with pytest.raises(BrokerRefused, match="no name"):
        queue.ensure_topics(["no name"])


# ---- members come and go ----------------------------------------------------------------------------


class Member(threading.Thread):
    """Polls and commits at once; seen: every record it was given, with what the group had committed by then."""

    def __init__(self, queue):
        super().__init__(daemon=True)
        self.queue, self.seen, self.stopped = queue, [], threading.Event()
        self.consumer = queue.consumer("g", [T])
        self.start()

    def run(self):
        while not self.stopped.is_set():
            for record in self.consumer.poll(0.1, max_records=4):
                place = (record.place.topic, record.place.partition)
                self.seen.append(record.place)
                self.consumer.commit({place: record.place.offset + 1})
        self.consumer.close()

    def leave(self):
        self.stopped.set()
        self.join(30)


def test_ten_joins_and_leaves_repeat_nothing_that_was_committed(queue):
    queue.ensure_topics([T], partitions=4)
    members, sent = [Member(queue), Member(queue)], []
    seen = lambda: [place for member in members for place in member.seen]  # noqa: E731 - a view of the test's own
    for turn in range(10):
        sent += queue.publish([a_message(key=b"%d-%d" % (turn, n)) for n in range(20)])
        members.append(Member(queue))
        assert eventually(members[-1].consumer.assigned)
        sent += queue.publish([a_message(key=b"%d-%d" % (turn, n)) for n in range(20, 40)])
        members[-1].leave()
    assert eventually(lambda: len(set(seen())) == 400)
    for member in members:
        member.leave()
    assert sorted(seen(), key=repr) == sorted(sent, key=repr)  # each once: nothing was in hand when a member left


# ---- who may come in --------------------------------------------------------------------------------


def login(**changes):
    return Security(**{"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", "username": USER, **changes})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_who_knows_the_password_comes_in(kafka, opened, mechanism):
    queue = opened(bootstrap=kafka.login, security=login(mechanism=mechanism, password=PASSWORD))
    queue.ensure_topics([T])
    queue.publish([a_message()])
    consumer = queue.consumer("g", [T])
    assert len(consumed(consumer, 1)) == 1
    consumer.close()


def test_behind_tls_too(kafka, opened):
    security = login(protocol="SASL_SSL", password=PASSWORD, ca=kafka.ca)
    queue = opened(bootstrap=kafka.tls, security=security)
    queue.ensure_topics([T])
    assert len(queue.publish([a_message()])) == 1


IN_DOUBT = "either no broker is ready there, or wrong is the name or password of user 'mill'"
"""The broker hangs up on who gives a wrong password, and now and then its reason gets lost over that."""


@pytest.mark.parametrize(
    ("door", "security", "reason"),
    [
        pytest.param("login", login(password="wrong"), f"invalid credentials|{IN_DOUBT}", id="wrong password"),
        pytest.param(
            "login", login(mechanism="PLAIN", password="wrong"), f"Invalid username|{IN_DOUBT}", id="wrong in PLAIN"
        ),
        pytest.param(
            "login", login(mechanism="SCRAM-SHA-512", password=PASSWORD), f"credentials|{IN_DOUBT}", id="no such user"
        ),
        pytest.param("login", Security(), "disconnected", id="no login where one is needed"),
        pytest.param("address", login(password=PASSWORD), "it asks for no login", id="a login where none is taken"),
        pytest.param(
            "tls", login(protocol="SASL_SSL", password=PASSWORD), "certificate verify failed", id="nobody vouches"
        ),
    ],
)
def test_who_is_refused_is_told_why(kafka, opened, door, security, reason):
    queue = opened(bootstrap=getattr(kafka, door), security=security, answer_s=2.0)
    for ask in (lambda: queue.ensure_topics([T]), lambda: queue.publish([a_message()])):
        with pytest.raises((BrokerRefused, BrokerUnavailable), match=reason) as refused:
            ask()
        assert PASSWORD not in str(refused.value)


def test_a_certificate_for_another_name_is_refused_unless_names_are_not_checked(kafka, opened):
    there = kafka.tls.replace("localhost", "127.0.0.1")
    security = login(protocol="SASL_SSL", password=PASSWORD, ca=kafka.ca)
    with pytest.raises(BrokerRefused, match=r"127\.0\.0\.1"):
        opened(bootstrap=there, security=security, answer_s=2.0).facts(T)
    assert opened(bootstrap=there, security=security.evolve(check_hostname=False)).facts("nobody") is None


def test_a_certificate_file_that_is_not_there_is_named(kafka, opened, tmp_path):
    security = login(protocol="SASL_SSL", password=PASSWORD, ca=tmp_path / "none.pem")
    with pytest.raises(BrokerRefused, match=r"the ca file .*none\.pem is not there"):
        opened(bootstrap=kafka.tls, security=security).facts(T)


def test_where_nobody_listens_it_says_so(opened):
    with pytest.raises(BrokerUnavailable, match="ECONNREFUSED"):
        opened(bootstrap="127.0.0.1:1", answer_s=1.0).facts(T)


def test_where_time_ran_out_and_nobody_said_why_both_possibilities_are_named(opened):
    """Something takes connections there and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        where = f"127.0.0.1:{deaf.getsockname()[1]}"
        queue = opened(bootstrap=where, security=login(password=PASSWORD), answer_s=1.0)
        with pytest.raises(BrokerUnavailable) as unanswered:
            queue.facts(T)
    doubts = "either no broker is ready there, or wrong is the name or password of user 'mill' for SCRAM-SHA-256"
    assert doubts in str(unanswered.value)
