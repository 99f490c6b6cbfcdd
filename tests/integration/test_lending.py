"""An interactive pool that lends, in a real `nightmill up`: its worker does the tasks of the batch pool too."""

import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.upped import COMMAND, until, upped

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROWS = 160
POOLS = """
api_port = 0
drain_grace_s = 2
[pools.talk]
model = "fake"
purpose = "interactive"
lends = true
min_workers = 1
engine_args = { row_latency_s = 0.2, max_num_seqs = 4, token_latency_s = 0.001 }
[pools.batch]
model = "fake"
engine_args = { start_s = 600.0 }
"""


@pytest.fixture
def up(tmp_path):
    with upped(tmp_path, POOLS) as opened:
        yield opened


def submitted(up):
    table = up.folder / "in.parquet"
    pq.write_table(pa.table({"name": [f"thing {number}" for number in range(ROWS)]}), table)
    words = ["--home", str(up.home.settings.home), "submit", str(table), "--model", "fake", "--prompt", "{{ name }}"]
    subprocess.run([*COMMAND, *words], check=True, capture_output=True)
    return up.home.store.jobs()[0].id


def test_the_job_of_a_pool_that_cannot_start_is_done_by_one_that_lends_between_its_requests(up):
    client = up.client(up.key())
    up.ready(client, "fake")
    job = submitted(up)
    until(lambda: up.home.store.job(job).usage.rows, "a row that was lent a seat")
    ends = [client.completions.create(model="fake", prompt="a", max_tokens=2).usage.completion_tokens for _ in range(5)]
    assert ends == [2] * 5
    until(lambda: up.home.store.job(job).state == "completed", "end of the job", within_s=120)
    found = up.home.store.job(job)
    assert (found.pool, found.usage.outcomes) == ("batch", {"ok": ROWS})
