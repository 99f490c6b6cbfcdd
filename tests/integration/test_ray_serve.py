"""The API on a cluster: replicas of Ray Serve behind one address, batches kept by the scheduler."""

from importlib.util import find_spec

import openai
import pytest

from tests.support.api import a_key_of, some_lines
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
LINES = 200


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with local_ray(), a_served_town(tmp_path_factory.mktemp("served")) as opened:
        yield opened


def serving():
    """Imported where its warnings are expected."""
    from ray import serve  # noqa: PLC0415

    return serve


def replicas():
    """How many run."""
    found = serving().status().applications[APP].deployments["api"]
    return found.replica_states.get("RUNNING", 0)


def test_a_batch_goes_through_two_replicas_one_of_which_is_killed(town):
    url = f"http://127.0.0.1:{town.settings.api_port}/v1"
    with openai.OpenAI(base_url=url, api_key=a_key_of(town.home, "acme"), max_retries=8) as client:
        file = client.files.create(file=("in.jsonl", some_lines(LINES)), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            extra_headers={"idempotency-key": "one"},
        )
        assert replicas() == 2
        kill_a_replica()
        town.until(lambda: client.batches.retrieve(batch.id).status == "completed", "the end of the batch")
        again = client.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            extra_headers={"idempotency-key": "one"},
        )
        done = client.batches.retrieve(batch.id)
        lines = client.files.content(done.output_file_id).text.splitlines()
    town.until(lambda: replicas() == 2, "two replicas again")
    assert (again.id, done.request_counts.completed, len(lines)) == (batch.id, LINES, LINES)


def kill_a_replica():
    """Its process ends at once, as by kill -9."""
    found = [entry for entry in list_named_actors(all_namespaces=True) if APP in entry["name"]]
    ray.kill(ray.get_actor(**found[0]), no_restart=True)
