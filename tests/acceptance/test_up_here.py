"""`nightmill up` in one process: jobs that others submit are run, and outlive it."""

import pytest

from api.cli.exits import Exit
from tests.acceptance.conftest import FAKE_WARNING, refused, wait_for
from tests.acceptance.goods import ROWS
from tests.acceptance.test_going_on import PROMPT, is_whole

pytestmark = pytest.mark.acceptance

SLOW = """
[pools.slow]
model = "fake"
engine_args = { rows_per_s = 12, max_num_seqs = 2 }
"""


@pytest.fixture
def submit(nightmill, inputs):
    def submit(*options):
        return nightmill("submit", inputs / "goods.parquet", "--model", "fake", *PROMPT, *options).out.strip()

    return submit


def is_up(running):
    wait_for(lambda: "Nightmill is up" in running.out, "word that it is up", running)


def test_a_job_submitted_beside_it_is_completed(nightmill, submit):
    with nightmill.started("up", "--model", "fake") as up:
        is_up(up)
        assert up.err == FAKE_WARNING
        job = submit()
        assert nightmill("watch", job, "--quiet").code == Exit.OK
        assert is_whole(nightmill, job, ok=ROWS)
        up.interrupt()
        done = up.wait()
    assert (done.code, done.out.splitlines()[-1]) == (Exit.OK, "Nightmill is down.")


def test_a_job_outlives_its_end_and_its_death(nightmill, submit):
    (nightmill.home / "nightmill.toml").write_text(SLOW)
    with nightmill.started("up") as up:
        is_up(up)
        job = submit("--rows-per-task", 4)
        wait_for(lambda: nightmill.status(job)["rows"], "committed rows", up, every_s=0.15)
        up.interrupt()
        assert up.wait().code == Exit.OK
    done = nightmill.status(job)["rows"]
    assert 0 < done < ROWS
    assert nightmill.status(job)["state"] == "running"
    with nightmill.started("up") as up:
        wait_for(lambda: nightmill.status(job)["rows"] > done, "more rows", up, every_s=0.15)
        up.kill()
        up.wait()
    (nightmill.home / "nightmill.toml").write_text(SLOW.replace("rows_per_s = 12, ", ""))
    with nightmill.started("up") as up:
        assert nightmill("watch", job, "--quiet").code == Exit.OK
        assert is_whole(nightmill, job, ok=ROWS)
        up.interrupt()
        assert up.wait().code == Exit.OK


def test_two_jobs_of_two_tenants_share_a_pool_and_the_urgent_one_goes_first(nightmill, submit):
    (nightmill.home / "nightmill.toml").write_text(SLOW)
    slow = submit("--rows-per-task", 4, "--priority", "batch", "--tenant", "one")
    urgent = submit("--rows-per-task", 4, "--limit", 8, "--priority", "critical", "--tenant", "two")
    with nightmill.started("up") as up:
        assert nightmill("watch", urgent, "--quiet").code == Exit.OK
        assert nightmill.status(slow)["rows"] < ROWS
        nightmill("cancel", slow)
        assert nightmill("watch", slow, "--quiet", code=None).code == Exit.NOT_COMPLETED
        up.interrupt()
        assert up.wait().code == Exit.OK


def test_a_second_one_in_the_same_data_directory_is_refused(nightmill):
    with nightmill.started("up", "--model", "fake") as up:
        is_up(up)
        sentence = f"Nightmill is up here already, in process {up.process.pid}."
        assert nightmill("up", "--model", "fake", code=Exit.CONFLICT) == refused(sentence, code=Exit.CONFLICT)


def test_without_a_model_it_says_how_to_get_one(nightmill):
    sentence = "There is no model to serve. Run: nightmill models prepare smollm2, or nightmill models add NAME FOLDER."
    assert nightmill("up", code=Exit.REFUSED) == refused(sentence)


def test_an_engine_that_cannot_start_is_told_and_the_job_waits(nightmill, submit):
    (nightmill.home / "nightmill.toml").write_text('[pools.bad]\nmodel = "fake"\nengine_args = { no_such = 1 }\n')
    with nightmill.started("up") as up:
        is_up(up)
        job = submit()
        up.says("unknown engine argument no_such")
        assert nightmill.status(job)["state"] == "running"
        up.interrupt()
        assert up.wait().code == Exit.OK
