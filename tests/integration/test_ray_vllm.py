"""A cluster on one local Ray whose engine is vLLM with a small model: a worker is killed in the middle of a job."""

import os
import signal
from importlib.util import find_spec

import pytest

from jobs.model import JobState
from tests.support.local_ray import local_ray
from tests.support.prepared import prepared_model

if find_spec("ray") is not None:
    from tests.support.town import Town, wasted_tokens, written

pytestmark = [pytest.mark.integration, pytest.mark.engine, pytest.mark.timeout(600)]

ROWS = 400
START_S = 240.0
"""An engine takes up to a minute to start, and here two do, one after the other."""
SETTINGS = "kv_cache_gib = 1\n"
POOL = """
[pools.batch]
model = "tiny"
engine_args = { max_num_seqs = 16 }
"""


@pytest.fixture
def town(tmp_path):
    model = prepared_model("tiny")
    with local_ray():
        opened = Town(tmp_path, SETTINGS, pool=POOL, model="tiny")
        assert opened.command("models", "add", "tiny", str(model), "--price", "0.1/0.05/0.4") == 0
        opened.cluster.up()
        yield opened
        opened.cluster.down(20)
        opened.home.close()


def test_a_worker_with_vllm_is_killed_and_the_job_ends_complete(town):
    job = town.submit("--limit", str(ROWS), "--max-tokens", "16", "--pause-on", "never")
    town.until(lambda: town.job(job).usage.rows >= ROWS // 4, "a quarter of the rows", START_S)
    victim = town.workers()[0]
    os.kill(victim["pid"], signal.SIGKILL)
    town.until(lambda: town.job(job).state.terminal, "the end of the job", START_S)
    done = town.job(job)
    assert (done.state, done.usage.rows) == (JobState.COMPLETED, ROWS)
    assert written(done) == [str(n) for n in range(ROWS)]
    assert town.home.store.verify().faults == ()
    assert town.home.store.open_reservations(job.id) == {}
    print(f"tokens in the waste: {wasted_tokens(town, job):,} beside {done.usage.output_tokens:,} of output")
