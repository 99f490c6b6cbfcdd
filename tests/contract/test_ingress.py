"""An ingress over every queue adapter: one job a key, whoever dies; and what is refused is in the dead letters."""

import json

import pytest

from infra.clocks import SystemClock
from infra.data.submission import read_submission
from jobs.ports.queue import Outgoing
from jobs.topics import ingress_topics
from tests.factories import a_job
from tests.support.kafka import eventually
from workers.ingress import Ingress, IngressPolicy
from workers.letters import CODE, ORIGIN, PLACE

pytestmark = pytest.mark.contract

GROUP, DEAD = "nightmill.submit", "nightmill.dead"
TOPICS = ingress_topics("nightmill", ["acme", "globex"])
ACME, GLOBEX = TOPICS
ASKED = {"input": "s3://in/a.parquet", "model": "m", "output": "s3://out/"}


class Doors:
    """Ingresses of one group, one after the other, and the jobs that all of them made, by tenant and key."""

    def __init__(self, queue):
        self.queue, self.jobs, self.open = queue, {}, []

    def another(self):
        policy = IngressPolicy(topics=TOPICS, group=GROUP, dead_topic=DEAD, poll_s=0.02)
        clock = SystemClock()
        self.open.append(
            Ingress(broker=self.queue, clock=clock, read=read_submission, submit=self.submit, policy=policy)
        )
        self.open[-1].poll_step()
        return self.open[-1]

    def submit(self, request):
        key = request.tenant, request.idempotency_key
        return self.jobs.setdefault(key, a_job(f"job-{len(self.jobs)}"))

    def send(self, topic, key, **asked):
        self.queue.publish([Outgoing(topic=topic, key=key.encode(), value=json.dumps({**ASKED, **asked}).encode())])

    def finished(self):
        """How many messages the group is past."""
        parts = {topic: range(self.queue.facts(topic).partitions) for topic in TOPICS}
        return sum(self.queue.committed(GROUP, topic, part) or 0 for topic in TOPICS for part in parts[topic])


@pytest.fixture
def doors(queue):
    made = Doors(queue)
    yield made
    for door in made.open:
        door.close()


def step(door):
    door.poll_step()
    while door.submit_step(wait_s=0.02):
        pass
    door.poll_step()


def test_submissions_become_jobs_of_their_topic_s_tenant_and_are_finished(doors):
    door = doors.another()
    for topic, key in [(ACME, "a"), (GLOBEX, "a"), (ACME, "b"), (ACME, "a")]:
        doors.send(topic, key)
    assert eventually(lambda: step(door) or doors.finished() == 4)
    assert sorted(doors.jobs) == [("acme", "a"), ("acme", "b"), ("globex", "a")]
    assert door.counts == {"taken": 4}


@pytest.mark.parametrize("job_is_written", [False, True])
def test_what_a_dead_ingress_had_in_hand_comes_again_and_is_one_job(doors, job_is_written):
    door = doors.another()
    doors.send(ACME, "a")
    assert eventually(lambda: door.poll_step() or len(door._in_hand) == 1)
    if job_is_written:
        assert door.submit_step()
    door._consumer.close()  # as a kill does: the offset of what it took is not committed
    door._consumer = None
    doors.open.clear()
    assert doors.finished() == 0
    after = doors.another()
    assert eventually(lambda: step(after) or doors.finished() == 1)
    assert list(doors.jobs) == [("acme", "a")]
    assert after.counts == {"taken": 1}


def test_what_is_refused_lies_in_the_dead_letters_and_can_be_read_there(doors, queue):
    door = doors.another()
    queue.publish([Outgoing(topic=ACME, key=b"k", value=b"\xff", headers=(("h", b"1"),))])
    doors.send(ACME, "k", tenant="globex")
    assert eventually(lambda: step(door) or doors.finished() == 2)
    reader, letters = queue.consumer("reader", [DEAD]), []
    assert eventually(lambda: letters.extend(reader.poll(0.02)) or len(letters) == 2)
    reader.close()
    found = [(record.key, record.value, dict(record.headers)) for record in letters]
    assert [(key, value, headers[ORIGIN], headers[CODE]) for key, value, headers in found] == [
        (b"k", b"\xff", ACME.encode(), b"bad_input"),
        (b"k", json.dumps({**ASKED, "tenant": "globex"}).encode(), ACME.encode(), b"bad_input"),
    ]
    assert [(headers[PLACE], headers.get("h")) for _, _, headers in found] == [(b"0:0", b"1"), (b"0:1", None)]
    assert doors.jobs == {}


def test_a_topic_that_is_there_stays_as_it_is_and_is_read(doors, queue):
    queue.ensure_topics([ACME], partitions=3)
    door = doors.another()
    for number in range(6):
        doors.send(ACME, f"key-{number}")
    assert eventually(lambda: step(door) or doors.finished() == 6)
    assert (len(doors.jobs), queue.facts(ACME).partitions) == (6, 3)
