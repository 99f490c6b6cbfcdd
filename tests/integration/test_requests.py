"""Interactive requests through a real `nightmill up`: the same as by batch, charged once, whatever dies on the way."""

import json
import threading
import time
from itertools import count

import openai
import pytest

from tests.support.prepared import prepared_model
from tests.support.upped import until, upped

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
REAL = """
api_port = 0
kv_cache_gib = 1
[pools.both]
model = "smollm2"
requests = true
engine_args = { max_num_seqs = 8 }
[pools.embed]
model = "minilm"
purpose = "embedding"
"""
BODIES = {
    "/v1/chat/completions": {"model": "fake", "messages": [{"role": "user", "content": "Name a river"}]},
    "/v1/completions": {"model": "fake", "prompt": "Once upon a"},
    "/v1/embeddings": {"model": "embedder", "input": ["a lamp", "two chairs"]},
}
REAL_MODELS = {"fake": "smollm2", "embedder": "minilm"}


NUMBERS = count(1)


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    with upped(tmp_path_factory.mktemp("up"), POOLS, "slow:chat", "embedder:embedding") as opened:
        client = opened.client(opened.key("other"))
        for model in ("fake", "slow", "embedder"):
            opened.ready(client, model)
        yield opened


@pytest.fixture
def tenant():
    return f"tenant-{next(NUMBERS)}"


@pytest.fixture
def client(up, tenant):
    return up.client(up.key(tenant))


def create(client, endpoint, **more):
    body = {**BODIES[endpoint], **more}
    kind = {"/v1/chat/completions": client.chat.completions, "/v1/completions": client.completions}
    return kind.get(endpoint, client.embeddings).create(**body)


def text_of(endpoint, answer):
    if endpoint == "/v1/embeddings":
        return [entry.embedding for entry in answer.data]
    choice = answer.choices[0]
    return choice.text if endpoint == "/v1/completions" else choice.message.content


def by_stream(client, endpoint, **more):
    """(what it said, its usage, its id)."""
    options = {"include_usage": True}
    chunks = list(create(client, endpoint, stream=True, stream_options=options, **more))
    said = [chunk.choices[0] for chunk in chunks if chunk.choices]
    pieces = [one.text if endpoint == "/v1/completions" else one.delta.content or "" for one in said]
    return "".join(pieces), chunks[-1].usage, chunks[0].id


def by_batch(client, endpoint, **more):
    """(the answer's body, the batch)."""
    line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": {**BODIES[endpoint], **more}}
    file = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
    ended = []
    until(lambda: ended.append(client.batches.retrieve(batch.id)) or ended[-1].status == "completed", "the batch")
    (answer,) = client.files.content(ended[-1].output_file_id).text.splitlines()
    return json.loads(answer)["response"]["body"], ended[-1]


def tokens(usage):
    return usage.prompt_tokens, getattr(usage, "completion_tokens", 0)


def check_every_way(up, client, tenant, endpoint, **changes):
    """The same tokens and the same charge, streamed, at once and by batch; a record for each request."""
    generates = endpoint != "/v1/embeddings"
    more = {"max_tokens": 12, "temperature": 0} if generates else {"encoding_format": "float"}
    more |= changes
    create(client, endpoint, **more)  # what the prefix cache can hold of it is there from now on, for all
    whole = create(client, endpoint, **more)
    body, _ = by_batch(client, endpoint, **more)
    kind = {"/v1/chat/completions": openai.types.chat.ChatCompletion, "/v1/completions": openai.types.Completion}
    line = kind.get(endpoint, openai.types.CreateEmbeddingResponse).model_validate(body)
    found = {
        "sync": (text_of(endpoint, whole), tokens(whole.usage)),
        "batch": (text_of(endpoint, line), tokens(line.usage)),
    }
    if generates:
        said, usage, name = by_stream(client, endpoint, **more)
        found["stream"] = said, tokens(usage)
        assert name != whole.id
    assert len({json.dumps(one) for one in found.values()}) == 1, found
    (job,) = up.home.store.jobs(tenant=tenant)
    requests = up.records(tenant)[1:]
    assert [outcome for _, outcome, _ in requests] == (["truncated"] * 2 if generates else ["ok"])
    charges = {up.charge("task", name) for name, _, _ in requests} | {up.charge("job", job.id)}
    assert len(charges) == 1
    assert charges != {0}


@pytest.mark.parametrize("endpoint", BODIES)
def test_one_piece_of_work_is_the_same_and_costs_the_same_in_every_way(up, client, tenant, endpoint):
    check_every_way(up, client, tenant, endpoint)


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_it_is_the_same_on_a_real_engine(tmp_path):
    (tmp_path / "home" / "models").mkdir(parents=True)
    for name in REAL_MODELS.values():
        (tmp_path / "home" / "models" / name).symlink_to(prepared_model(name), target_is_directory=True)
    with upped(tmp_path, REAL) as up:
        up.home.example_prices(*REAL_MODELS.values())
        for number, (endpoint, body) in enumerate(BODIES.items()):
            client = up.client(up.key(tenant := f"real-{number}"))
            model = REAL_MODELS[body["model"]]
            up.ready(up.client(up.key("first")), model, within_s=240)
            check_every_way(up, client, tenant, endpoint, model=model)


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
