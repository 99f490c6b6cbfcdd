"""The console script as a shell runs it: help, pipes, directories, and what the environment gets wrong."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from api.cli.exits import Exit
from tests.acceptance.conftest import COMMAND, wait_for

pytestmark = pytest.mark.acceptance


def test_no_arguments_at_all_show_what_there_is(shell):
    done = shell("nightmill")
    assert (done.returncode, done.stdout) == (Exit.REFUSED, "")
    assert done.stderr.startswith("Usage: nightmill [OPTIONS] COMMAND [ARGS]...\n")


def test_a_run_and_what_follows_it_by_the_console_script(shell, inputs):
    done = shell(
        'JOB=$(nightmill run "$1" --model fake --prompt "Sell {{ name }}" --limit 3 --quiet) && nightmill wait $JOB '
        "&& nightmill results last --jsonl | wc -l",
        inputs / "goods.parquet",
    )
    assert (done.returncode, done.stdout.splitlines()[-1].strip()) == (0, "3"), done.stderr


def test_a_reader_that_stops_early_is_no_fault(shell, nightmill, tmp_path):
    """As `nightmill results JOB --jsonl | head -1`."""
    pq.write_table(pa.table({"n": range(3000)}), tmp_path / "t.parquet")
    job = nightmill.run(tmp_path / "t.parquet", "--prompt", "{{ n }} and more", "--quiet").job
    done = shell('nightmill results "$1" --jsonl | head -1; echo ${PIPESTATUS[0]}', job)
    line, code = done.stdout.splitlines()
    assert (json.loads(line)["response"]["status_code"], int(code), done.stderr) == (200, Exit.PIPE_CLOSED, "")


def test_a_wrong_command_and_a_wrong_option_name_the_nearest(shell):
    wrong = shell("nightmill reslts last; nightmill jobs --lst 3")
    assert wrong.stderr.splitlines() == [
        "Error: There is no command reslts. Did you mean results? See: nightmill --help",
        "Error: No such option '--lst'. Did you mean '--last'? See: nightmill jobs --help",
    ]


def test_a_data_directory_that_cannot_be_made_is_refused_naming_it(shell, tmp_path):
    (tmp_path / "file").touch()
    done = shell('nightmill --home "$1" jobs; echo $?', tmp_path / "file/home")
    assert done.stdout == f"{int(Exit.REFUSED)}\n"
    assert (str(tmp_path / "file/home") in done.stderr, "Traceback" in done.stderr) == (True, False)


def test_a_data_directory_that_cannot_be_written_is_refused_naming_it(shell):
    done = shell("nightmill --home /sys/nightmill jobs; echo $?")
    assert done.stdout == f"{int(Exit.REFUSED)}\n"
    assert ("/sys/nightmill" in done.stderr, "Traceback" in done.stderr) == (True, False)


def test_faults_of_the_settings_are_told_all_at_once(shell):
    done = shell("NIGHTMILL_LEASE_S=soon NIGHTMILL_TENNANT=x nightmill jobs; echo $?")
    assert done.stdout == f"{int(Exit.REFUSED)}\n"
    assert ("NIGHTMILL_LEASE_S" in done.stderr, "NIGHTMILL_TENNANT" in done.stderr) == (True, True)


def test_a_terminal_gets_a_live_view_and_the_job_in_it(nightmill, inputs):
    """In a pseudo-terminal; the job's id is not printed once more on stdout."""
    master, terminal = os.openpty()
    argv = [COMMAND, "run", str(inputs / "goods.parquet"), "--model", "fake", "--prompt", "Sell {{ name }}"]
    slow = ["--engine-arg", "rows_per_s=40", "--rows-per-task", "5"]
    env = {**nightmill.env, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(
        [*argv, *slow], cwd=nightmill.folder, env=env, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        said = b""
        while chunk := _read(master):
            said += chunk
    os.close(master)
    text = said.decode()
    print(text)
    job = nightmill.jobs()[0]
    assert process.returncode == 0
    for words in (f"Job {job}: 60 rows", "generated", "committed", "spent so far", "time left", "60 of 60: 60 ok"):
        assert words in text
    assert f"\n{job}\r\n" not in text


def _read(master):
    try:
        return os.read(master, 1 << 16)
    except OSError:  # the other side is closed
        return b""


def test_ctrl_c_of_a_terminal_does_not_reach_the_engine(nightmill, inputs):
    """It goes to the whole process group; an engine that died of it could not finish its rows."""
    argv = [COMMAND, "run", str(inputs / "goods.parquet"), "--model", "fake", "--prompt", "Sell {{ name }}", "--quiet"]
    slow = ["--engine-arg", "row_latency_s=1.5", "--engine-arg", "max_num_seqs=4", "--rows-per-task", "4"]
    process = subprocess.Popen(
        [*argv, *slow],
        cwd=nightmill.folder,
        env=nightmill.env,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        job = process.stdout.readline().strip()
        assert job, process.stderr.read()
        wait_for(lambda: nightmill.status(job)["tasks"].get("leased"), "a leased task", every_s=0.15)
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(15)
    assert process.returncode == Exit.PAUSED
    assert children
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert nightmill.status(job)["rows"] >= 4


@pytest.mark.timeout(240)
def test_a_huge_row_group_is_read_in_bounded_memory(nightmill, tmp_path):
    """It is of 1 GB, which is more than may be resident: a group that is read in one piece would show."""
    source = tmp_path / "huge.parquet"
    rows, limit = 20_000, 7_000
    texts = pc.binary_repeat(pa.array([f"{n:010d}" for n in range(rows)]), 5_000)
    assert texts.nbytes > 1e9
    pq.write_table(pa.table({"text": texts}), source, row_group_size=rows, use_dictionary=False, compression="snappy")
    del texts
    options = ["--prompt", "{{ text[:20] }}", "--keep", "", "--limit", str(limit), "--quiet"]
    argv = [COMMAND, "run", str(source), "--model", "fake", *options]
    peak = 0
    with subprocess.Popen(argv, cwd=nightmill.folder, env=nightmill.env) as process:
        while process.poll() is None:
            peak = max(peak, _peak_mib(process.pid))
            time.sleep(0.05)
    assert process.returncode == 0
    assert nightmill.status("last")["outcomes"] == {"ok": limit}
    assert 50 < peak < 900


def _peak_mib(pid):
    """The most resident memory so far. (`getrusage` would count that of pytest, from before the exec.)"""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) >> 10 if found else 0


CAN_MOUNT = subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not CAN_MOUNT, reason="no user namespaces here to mount a small disk in")
def test_a_full_disk_pauses_the_job_with_the_reason_and_resume_goes_on_when_there_is_space(shell, nightmill, inputs):
    nightmill.folder.joinpath("disk").mkdir()
    script = """
        mount -t tmpfs -o size=1m tmpfs disk && head -c 1000000 /dev/zero > disk/filler
        nightmill run "$1" --model fake --prompt 'Sell {{ name }}' --output disk/out --rows-per-task 5 --quiet > job.txt
        echo $?
        nightmill status last --json
        rm disk/filler
        nightmill resume last --quiet > /dev/null 2>&1; echo $?
        nightmill results last --head 99 --json
        ls disk/out/*/_SUCCESS
    """
    done = shell('unshare -rm bash -c "$1" bash "$2"', script, inputs / "goods.parquet")
    code, status, resumed, rows, success = done.stdout.splitlines()
    job = json.loads(status)
    folder = nightmill.folder / "disk/out" / job["job"]
    said = done.stderr.splitlines()[-1].removeprefix("Error: ")
    assert (int(code), job["state"], job["reason"]) == (Exit.UNAVAILABLE, "paused", said)
    assert said.startswith(f"No space left on the disk that holds {folder}/")
    assert said.endswith(". Free some space; the job can be resumed.")
    assert (int(resumed), sorted(row["row"] for row in json.loads(rows))) == (Exit.OK, list(range(60)))
    assert success == f"disk/out/{job['job']}/_SUCCESS"
