"""A job while it runs, and after it was paused, cancelled, interrupted or killed: what other processes see and do."""

import shutil
import signal
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from api.cli.exits import Exit
from tests.acceptance.conftest import wait_for
from tests.acceptance.goods import ROWS

pytestmark = pytest.mark.acceptance

SLOW = ("--engine-arg", "rows_per_s=12", "--engine-arg", "max_num_seqs=2", "--rows-per-task", 4)
"""Sixty rows take 5 s; at most 4 are inside the engine."""
FAST = ("--engine-arg", "rows_per_s=0", "--engine-arg", "row_latency_s=0", "--quiet")
PROMPT = ("--prompt", "Sell {{ name }}", "--id", "sku", "--keep", "sku")


@pytest.fixture
def slow(nightmill, inputs):
    """A job that is running, with its first rows committed."""
    with nightmill.started("run", inputs / "goods.parquet", "--model", "fake", *PROMPT, *SLOW, "--quiet") as running:
        nightmill.until_committed(running)
        yield running


def is_whole(nightmill, job, **outcomes):
    """Every row once, the outcomes as told, and a sound book that charges what the rows say."""
    table = nightmill.results(job)
    assert (table["row"].to_pylist(), dict(Counter(table["outcome"].to_pylist()))) == (list(range(ROWS)), outcomes)
    assert table["custom_id"].to_pylist() == table["sku"].to_pylist()
    book = nightmill("ledger", "statement", "--json").json["totals"]
    assert sum(line["amount_pico"] for line in book) == sum(table["amount_pico"].to_pylist())
    assert nightmill("ledger", "verify", "--json").json["sound"]
    return True


# ---- while it runs ------------------------------------------------------------------------------


def test_other_processes_see_a_job_run_and_the_rows_it_has_committed(nightmill, slow):
    job = slow.job()
    status = nightmill.status(job)
    assert (status["state"], status["process"], status["finished_at"]) == ("running", slow.process.pid, None)
    assert f"process       {slow.process.pid} runs it" in nightmill("status", job).out.splitlines()
    assert [one["state"] for one in nightmill("jobs", "--json").json] == ["running"]
    head = nightmill("results", job, "--head", 2, "--json").json
    assert [row["outcome"] for row in head] == ["ok", "ok"]
    assert nightmill("results", job).out.endswith(f"{status['output']} (published when the job ends)\n")
    assert list(nightmill.folder.glob("out/*/*.parquet")) == []
    assert slow.wait().code == Exit.OK
    assert is_whole(nightmill, job, ok=ROWS)


def test_wait_gives_up_after_its_time_and_else_has_the_exit_code_of_the_job(nightmill, slow):
    job = slow.job()
    gave_up = nightmill("wait", job, "--timeout", "0.2s", code=Exit.TIMED_OUT)
    assert (gave_up.out, gave_up.err.startswith(f"{job} is still running: ")) == ("", True)
    assert nightmill("wait", job, "--timeout", "30s").out.startswith(f"{job} completed: 60 of 60 rows committed")
    assert slow.wait().code == Exit.OK


def test_a_job_that_runs_can_be_neither_resumed_nor_retried_by_another(nightmill, slow):
    job, pid = slow.job(), slow.process.pid
    taken = nightmill("resume", job, *FAST, code=Exit.CONFLICT)
    assert taken.err.endswith(f"Error: Job {job} is being run by process {pid}. Wait for it, or stop that process.\n")
    assert nightmill("retry", job, code=Exit.REFUSED).err == (
        f"Error: Job {job} is running; retry needs a job that is finished.\n"
    )


def test_two_runs_share_a_data_directory_at_once(nightmill, inputs, slow):
    first = slow.job()
    with nightmill.started("run", inputs / "goods.parquet", "--model", "fake", *PROMPT, *SLOW, "--quiet") as other:
        second = nightmill.until_committed(other)
        assert {one["job"]: one["state"] for one in nightmill("jobs", "--json").json} == {
            first: "running",
            second: "running",
        }
        assert (slow.wait().code, other.wait().code) == (Exit.OK, Exit.OK)
    assert [nightmill.results(job)["row"].to_pylist() for job in (first, second)] == [list(range(ROWS))] * 2
    assert nightmill("ledger", "verify", "--json").json["sound"]


# ---- pause, cancel, deadline --------------------------------------------------------------------


def test_pause_from_another_process_ends_the_run_and_resume_goes_on_without_repeating(nightmill, slow):
    job = slow.job()
    assert nightmill("pause", job).out == f"{job}: pausing; finished rows are kept\n"
    ended = slow.wait(15.0)
    assert ended.code == Exit.PAUSED
    status = nightmill.status(job)
    assert (status["state"], status["reason"], status["process"]) == ("paused", "paused by nightmill pause", None)
    assert 0 < status["rows"] < ROWS
    assert nightmill("pause", job).out == f"{job}: paused already\n"
    assert nightmill("wait", job, code=Exit.PAUSED).out.startswith(f"{job} paused: ")
    before = {row["row"]: row for row in nightmill("results", job, "--head", ROWS, "--json").json}
    assert len(before) == status["rows"]
    assert nightmill("resume", job, *FAST).out == f"{job}\n"
    assert is_whole(nightmill, job, ok=ROWS)
    after = {row["row"]: row for row in nightmill("results", job, "--head", ROWS, "--json").json}
    assert {row: after[row] for row in before} == before


def test_cancel_from_another_process_ends_the_run_and_the_rest_are_cancelled_rows(nightmill, slow):
    job = slow.job()
    told = nightmill("cancel", job).out
    assert told == f"{job}: cancelling; process {slow.process.pid} ends it\n"
    assert slow.wait(15.0).code == Exit.NOT_COMPLETED
    done = nightmill.status(job)["outcomes"]["ok"]
    assert nightmill("wait", job, code=Exit.NOT_COMPLETED).out.startswith(f"{job} cancelled: 60 of 60 rows committed")
    assert is_whole(nightmill, job, ok=done, cancelled=ROWS - done)
    assert nightmill("cancel", job).out == f"{job}: cancelled already\n"
    line = next(line for line in nightmill("results", job, "--jsonl").lines if line["error"])
    assert (line["response"], line["error"]["code"]) == (None, "batch_cancelled")


def test_a_job_that_no_process_runs_is_cancelled_on_the_spot(nightmill, slow):
    job = slow.job()
    nightmill("pause", job)
    slow.wait()
    done = nightmill.status(job)["rows"]
    assert nightmill("cancel", job).out == f"{job}: cancelled; results: {nightmill.folder}/out/{job}\n"
    assert is_whole(nightmill, job, ok=done, cancelled=ROWS - done)


def test_a_deadline_makes_rows_that_are_not_done_expired_rows(nightmill, inputs):
    done = nightmill.run(inputs / "goods.parquet", *PROMPT, *SLOW, "--deadline", "1s", code=Exit.NOT_COMPLETED)
    assert "  (expired: its deadline passed)\n" in done.err
    counts = nightmill.status(done.job)["outcomes"]
    assert (sorted(counts), sum(counts.values())) == (["expired", "ok"], ROWS)
    assert is_whole(nightmill, done.job, **counts)


# ---- Ctrl-C -------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_is_finished_and_names_the_command_that_goes_on(nightmill, inputs):
    with nightmill.started("run", inputs / "goods.parquet", "--model", "fake", *PROMPT, *SLOW) as running:
        job = nightmill.until_committed(running)
        running.interrupt()
        done = running.wait(15.0)
    assert done.code == Exit.PAUSED
    said = done.err.splitlines()
    assert (
        "Stopping: rows in the engine may finish, then all finished rows are committed. Ctrl-C again stops at once."
        in said
    )
    assert said[-1] == f"go on with    nightmill resume {job}"
    status = nightmill.status(job)
    assert (status["state"], status["reason"]) == ("paused", "stopped by a signal")
    assert 0 < status["rows"] < ROWS
    nightmill("resume", "last", *FAST)
    assert is_whole(nightmill, job, ok=ROWS)


def test_ctrl_c_while_the_engine_starts_ends_at_once_and_leaves_a_job_to_resume(nightmill, inputs):
    source = inputs / "goods.parquet"
    with nightmill.started("run", source, "--model", "fake", *PROMPT, "--engine-arg", "start_s=60") as running:
        job = running.job()
        running.says("Starting the engine of fake")
        running.interrupt()
        done = running.wait(15.0)
    assert (done.code, done.err.splitlines()[-1]) == (Exit.PAUSED, f"go on with    nightmill resume {job}")
    assert nightmill.status(job)["reason"] == "stopped before its engine had started"
    nightmill("resume", job, *FAST, "--engine-arg", "start_s=0")
    assert is_whole(nightmill, job, ok=ROWS)


def test_ctrl_c_before_there_is_a_job_leaves_none(nightmill, inputs):
    source, schema = inputs / "goods.parquet", inputs / "schema.json"
    options = ("--schema", schema, "--engine-arg", "start_s=60")
    with nightmill.started("run", source, "--model", "fake", *PROMPT, *options) as running:
        wait_for(lambda: running.err, "a first word", running)
        running.interrupt()
        done = running.wait(10.0)
    assert (done.code, done.out, done.err.splitlines()[-1]) in {
        (Exit.INTERRUPTED, "", "Stopped."),
        (Exit.PAUSED, done.out, done.err.splitlines()[-1]),  # the fake engine answers about schemas before it is ready
    }
    assert len(nightmill.jobs()) == len(done.out.splitlines())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_process_at_once_and_loses_nothing_that_was_committed(nightmill, inputs, number):
    stuck = ("--engine-arg", "hang_after_rows=20", "--engine-arg", "max_num_seqs=2", "--rows-per-task", 4)
    with nightmill.started("run", inputs / "goods.parquet", "--model", "fake", *PROMPT, *stuck) as running:
        job = nightmill.until_committed(running)
        running.process.send(number)
        running.says("Stopping: ")
        running.process.send(number)
        done = running.wait(10.0)
    assert (done.code, done.err.splitlines()[-1]) == (
        Exit.INTERRUPTED,
        f"Stopped at once; what was committed is kept. Go on with: nightmill resume {job}",
    )
    kept = nightmill.status(job)["rows"]
    assert 0 < kept <= 20
    nightmill("resume", job, *FAST, "--engine-arg", "hang_after_rows=0")
    assert is_whole(nightmill, job, ok=ROWS)


# ---- death --------------------------------------------------------------------------------------


def test_after_kill_9_status_says_that_no_process_runs_it_and_resume_loses_and_repeats_nothing(nightmill, slow):
    job = slow.job()
    slow.kill()
    assert slow.wait().code == -signal.SIGKILL
    status = nightmill.status(job)
    assert (status["state"], status["process"], status["tasks"].get("leased", 0)) == ("running", None, 0)
    assert f"process       none; go on with: nightmill resume {job}" in nightmill("status", job).out.splitlines()
    assert nightmill("wait", job, code=Exit.PAUSED).out.startswith(f"{job} running: ")
    nightmill("resume", job, *FAST)
    assert is_whole(nightmill, job, ok=ROWS)


def test_an_engine_that_does_not_start_leaves_a_paused_job_with_the_reason(nightmill, inputs):
    done = nightmill.run(
        inputs / "goods.parquet", *PROMPT, "--quiet", "--engine-arg", "max_num_seqs=0", code=Exit.UNAVAILABLE
    )
    said = done.err.splitlines()[-1]
    assert said.startswith(
        "Error: The engine of model fake did not start: max_num_seqs must be at least 1, not 0 (log: "
    )
    status = nightmill.status(done.job)
    assert (status["state"], f"Error: {status['reason']}") == ("paused", said)
    nightmill("resume", done.job, *FAST, "--engine-arg", "max_num_seqs=4")
    assert is_whole(nightmill, done.job, ok=ROWS)


@pytest.mark.parametrize("change", ["content", "time", "gone"])
def test_a_resume_after_the_input_changed_is_refused_naming_the_file(nightmill, inputs, tmp_path, change):
    files = [tmp_path / f"data/{n}.parquet" for n in range(2)]
    files[0].parent.mkdir()
    for number, file in enumerate(files):
        pq.write_table(pq.read_table(inputs / f"split/goods-{number}.parquet"), file)
    stopped = nightmill.run(
        tmp_path / "data",
        "--prompt",
        "Sell {{ name }}",
        "--quiet",
        "--engine-arg",
        "max_num_seqs=0",
        code=Exit.UNAVAILABLE,
    )
    if change == "content":
        pq.write_table(pq.read_table(files[1]).slice(0, 0), files[1])
    elif change == "time":
        files[1].touch()
    else:
        files[1].unlink()
    done = nightmill("resume", stopped.job, "--quiet", code=Exit.REFUSED)
    assert done.err.startswith(f"Error: The input file {files[1]} changed since the job was submitted (")
    assert done.err.endswith("). Restore it, or submit a new job.\n")


def test_the_same_idempotency_key_gives_the_job_made_before_and_runs_nothing_again(nightmill, inputs):
    keyed = (inputs / "goods.parquet", *PROMPT, "--quiet", "--idempotency-key", "monday")
    first, second = nightmill.run(*keyed), nightmill.run(*keyed)
    assert (second.out, second.err) == (first.out, "")
    assert nightmill.jobs() == [first.job]
    assert is_whole(nightmill, first.job, ok=ROWS)
    other = nightmill.run(*keyed[:-1], "tuesday", "--limit", 1)
    assert nightmill.jobs() == [other.job, first.job]


def test_the_same_key_takes_up_a_job_that_was_stopped(nightmill, inputs):
    keyed = (inputs / "goods.parquet", *PROMPT, "--quiet", "--idempotency-key", "monday")
    stopped = nightmill.run(*keyed, "--engine-arg", "max_num_seqs=0", code=Exit.UNAVAILABLE)
    assert nightmill.run(*keyed).job == stopped.job
    assert is_whole(nightmill, stopped.job, ok=ROWS)


@pytest.mark.parametrize("command", ["resume", "cancel"])
def test_a_job_that_ended_without_its_success_gets_it_and_nothing_else_happens(nightmill, inputs, command):
    """What a process leaves that dies between the end of the record and the file; also a file that somebody lost."""
    job = nightmill.run(inputs / "goods.parquet", *PROMPT, "--quiet").job
    folder = Path(nightmill.status(job)["output"])
    (folder / "_SUCCESS").unlink()
    before = sorted(path.name for path in folder.iterdir())
    done = nightmill(command, job)
    assert (done.err, "its _SUCCESS was missing" in done.out) == ("", True)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "_SUCCESS"])
    again = nightmill(command, job, code=Exit.REFUSED)
    assert again.err.startswith(f"Error: Job {job} is completed; {command} needs a job that is running or paused")


def test_a_job_whose_results_were_deleted_gets_no_success(nightmill, inputs):
    job = nightmill.run(inputs / "goods.parquet", *PROMPT, "--quiet").job
    folder = Path(nightmill.status(job)["output"])
    shutil.rmtree(folder)
    assert (nightmill("resume", job, code=Exit.REFUSED).out, folder.exists()) == ("", False)
