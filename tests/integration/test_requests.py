"""Interactive requests through a real `nightmill up`: the same as by batch, charged once, whatever dies on the way."""

import threading
import time

import openai
import pytest

from tests.support.upped import until, upped
from tests.support.ways import BODIES, by_stream, check_every_way, create

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

POOLS = """
api_port = 0
drain_grace_s = 2
[pools.both]
model = "fake"
requests = true
min_workers = 1
engine_args = { token_latency_s = 0.005 }
[pools.slow]
model = "slow"
purpose = "interactive"
min_workers = 2
max_workers = 2
engine_args = { token_latency_s = 0.3, max_num_seqs = 8 }
[pools.embed]
model = "embedder"
purpose = "embedding"
min_workers = 1
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    with upped(tmp_path_factory.mktemp("up"), POOLS, "slow:chat", "embedder:embedding") as opened:
        client = opened.client(opened.key("other"))
        for model in ("fake", "slow", "embedder"):
            opened.ready(client, model)
        yield opened


@pytest.mark.parametrize("endpoint", BODIES)
def test_one_piece_of_work_is_the_same_and_costs_the_same_in_every_way(up, client, tenant, endpoint):
    check_every_way(up, client, tenant, endpoint)


def test_every_answer_has_one_record_and_no_other_has_any(up, client, tenant):
    ids, faults = [], []

    def talk(number):
        try:
            if number % 3 == 0:
                ids.append(by_stream(client, "/v1/completions", max_tokens=4)[2])
            elif number % 3 == 1:
                ids.append(create(client, "/v1/chat/completions", max_tokens=4).id)
            else:
                create(client, "/v1/completions", max_tokens=4, prompt=[1] * 5000)
        except openai.BadRequestError as error:
            faults.append(error.code)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == ["context_length_exceeded"] * 8
    charged = [name for name, outcome, _ in up.records(tenant) if outcome != "error"]
    assert (sorted(charged), len(ids)) == (sorted(ids), 16)


def begun(client, *, pieces, **more):
    """A stream of the slow model of which some pieces were heard; with its id."""
    stream = client.completions.create(model="slow", prompt="Once", max_tokens=24, stream=True, **more)
    heard = []
    for chunk in stream:
        if chunk.choices and chunk.choices[0].text:
            heard.append(chunk)
        if len(heard) == pieces:
            return stream, chunk.id
    raise AssertionError("the stream ended")


def test_who_hangs_up_pays_once_for_what_was_generated_and_has_its_place_again(up, tenant):
    client = up.client(up.key(tenant, concurrent_requests=1))
    stream, name = begun(client, pieces=2)
    stream.close()
    until(lambda: up.records(tenant), "a record")
    ((record, outcome, output_tokens),) = up.records(tenant)
    assert (record, outcome, 2 <= output_tokens <= 8) == (name, "cancelled", True)
    assert up.charge("task", name) > 0
    up.ready(client, "fake", within_s=10.0)


def workers_of(up, client, count):
    until(lambda: len(up.engines("slow")) == count, "the workers")
    up.ready(client, "slow")


def test_an_engine_that_dies_mid_stream_ends_it_with_an_error_and_nobody_pays(up, client, tenant):
    workers_of(up, client, 2)
    records = len(up.records(tenant))
    stream, _ = begun(client, pieces=2)
    for engine in up.engines("slow"):
        engine.kill()
    with pytest.raises(openai.APIError, match="broke off after"):
        list(stream)
    workers_of(up, client, 2)
    assert len(up.records(tenant)) == records + 1, "only what made sure that it is there again"


def test_an_engine_that_dies_before_the_first_token_is_followed_by_another(up, client, tenant):
    workers_of(up, client, 2)
    answers = []
    asked = [
        threading.Thread(
            target=lambda: answers.append(client.completions.create(model="slow", prompt="Hm", max_tokens=6))
        )
        for _ in range(4)
    ]
    before = len(up.records(tenant))
    for thread in asked:
        thread.start()
    time.sleep(0.6)
    up.engines("slow")[0].kill()
    for thread in asked:
        thread.join()
    assert len({answer.choices[0].text for answer in answers}) == 1
    assert sorted(answer.id for answer in answers) == sorted(name for name, *_ in up.records(tenant)[before:])


def test_a_process_that_is_killed_mid_stream_leaves_nothing_behind(up, client, tenant):
    """The last one: it is another process afterwards."""
    key = up.key(tenant, concurrent_requests=1, tokens_per_minute=1000)
    stream, name = begun(up.client(key), pieces=1)
    up.kill()
    with pytest.raises(openai.APIConnectionError):
        list(stream)
    up.start()
    up.ready(up.client(key), "slow")  # the place that the dead process held lapses
    ids = [record for record, *_ in up.records(tenant)]
    assert ids.count(name) == 0
    assert len(ids) == len(set(ids))
    assert up.home.store.verify().faults == ()
