"""Interactive requests on a cluster: two replicas of the API find the workers of Ray by themselves, and lose some."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import openai
import pytest

from tests.support.api import a_key_of
from tests.support.local_ray import a_served_town, local_ray

if find_spec("ray") is not None:
    import ray
    from ray.util import list_named_actors

    from api.serve import APP

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`"),  # Ray Serve's own models
]
POOL = """
[pools.talk]
model = "fake"
purpose = "interactive"
num_cpus = 0.1
min_workers = 2
max_workers = 2
engine_args = { token_latency_s = 0.3, max_num_seqs = 8 }
"""
TOKENS = 12


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with local_ray(), a_served_town(tmp_path_factory.mktemp("asked"), pool=POOL) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(town):
    url = f"http://127.0.0.1:{town.settings.api_port}/v1"
    with openai.OpenAI(base_url=url, api_key=a_key_of(town.home, "acme"), max_retries=0) as opened:
        town.until(lambda: len(town.workers()) == 2, "two workers")
        at_rest(town)
        yield opened


def seen_by(town, replicas=2):
    """Workers with a closed circuit, as each replica shows them; none before there are so many replicas."""
    targets = [target for entry in town.targets() if entry["labels"]["role"] == "api" for target in entry["targets"]]
    shown = [re.findall(r"^nightmill_circuits\{.*closed.*\} (\d+)", town.figures(one), re.MULTILINE) for one in targets]
    return [int(count) for found in shown for count in found] if len([one for one in shown if one]) == replicas else []


def at_rest(town):
    """Both replicas reach both workers, and nobody has a request in hand."""
    town.until(lambda: len(town.workers()) == 2, "two workers")
    town.until(lambda: seen_by(town) == [2, 2], "two workers seen by two replicas")
    town.until(lambda: not any(worker["requests"] for worker in town.workers()), "idle workers")


def stream(client):
    return client.completions.create(model="fake", prompt="Once", max_tokens=TOKENS, stream=True)


def charged(town):
    """Ids of the requests that were charged."""
    return {entry.task for entry in entries(town)}


def entries(town):
    return [entry for entry in town.home.store.entries(tenant="acme") if entry.account.startswith("tenant:")]


def kill_worker(town, name):
    (report,) = [worker for worker in town.workers() if worker["name"] == name]
    os.kill(report["pid"], signal.SIGKILL)


def busy_worker(town):
    """The one that has a request in hand, as it reports."""
    found = []
    town.until(lambda: found.extend(w["name"] for w in town.workers() if w["requests"]) or found, "a busy worker")
    return found[0]


def test_streams_go_through_both_replicas_to_the_workers(town, client):
    said = [list(stream(client)) for _ in range(3)]
    texts = {"".join(chunk.choices[0].text for chunk in chunks if chunk.choices) for chunks in said}
    ids = {chunks[0].id for chunks in said}
    assert (len(texts), len(ids), ids <= charged(town)) == (1, 3, True)


def test_no_secret_of_a_door_is_shown(town, client):
    assert {worker["secret"] for worker in town.workers()} == {""}


def test_a_worker_that_is_killed_mid_stream_ends_it_with_an_error_and_nobody_pays(town, client):
    chunks = iter(stream(client))
    name = next(chunks).id
    kill_worker(town, busy_worker(town))
    with pytest.raises(openai.APIError, match="broke off after"):
        list(chunks)
    assert name not in charged(town)


def test_a_worker_that_is_killed_before_the_first_token_is_followed_by_another(town, client):
    at_rest(town)
    with ThreadPoolExecutor() as threads:
        made = threads.submit(client.completions.create, model="fake", prompt="Hm", max_tokens=TOKENS)
        kill_worker(town, busy_worker(town))
        answer = made.result()
    classes = [entry.token_class for entry in entries(town) if entry.task == answer.id]
    assert (len(classes), answer.usage.completion_tokens) == (len(set(classes)), TOKENS)


def test_a_replica_that_is_killed_mid_stream_leaves_no_charge_and_no_request_behind(town, client):
    at_rest(town)
    chunks = iter(stream(client))
    name = next(chunks).id
    for entry in list_named_actors(all_namespaces=True):
        if APP in entry["name"]:
            ray.kill(ray.get_actor(**entry), no_restart=True)
    with pytest.raises((openai.APIError, openai.APIConnectionError)):
        list(chunks)
    at_rest(town)
    assert client.completions.create(model="fake", prompt="a", max_tokens=1).id in charged(town)
    assert name not in charged(town)
    assert town.home.store.verify().faults == ()
