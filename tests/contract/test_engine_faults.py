"""What a dying, hanging or refusing engine looks like from outside, and that nothing of it is left."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from infra.engines import EngineProcess
from infra.engines.group import members
from jobs.errors import EngineDied, EngineHung, EngineStartFailed
from tests.support.engines import (
    a_profile,
    a_spec,
    chat,
    collect,
    gone,
    left_of,
    pid_of,
    requests_of,
    run_rows,
    running,
    shared_memory_of,
    vllm_spec,
)
from tests.support.prepared import ROOT

pytestmark = pytest.mark.contract


@pytest.fixture
def fake(tmp_path):
    """Makes started fake engines with these arguments."""
    made = []

    def make(hang_timeout_s: float = 120.0, **engine_args) -> EngineProcess:
        made.append(EngineProcess(a_spec(tmp_path, engine_args=engine_args, hang_timeout_s=hang_timeout_s)))
        made[-1].start()
        return made[-1]

    yield make
    for engine in made:
        engine.stop()


def until_it_ends(engine: EngineProcess) -> list:
    """Everything that `poll` returns before it raises."""
    results = []
    while True:
        try:
            results += engine.poll(0.5)
        except EngineDied as death:
            return [*results, death]


def test_a_row_that_kills_the_engine_is_a_death_that_names_the_signal(fake):
    engine = fake(die_on="poison")
    pid = pid_of(engine)
    engine.submit(a_profile(), requests_of([chat("poison")]))
    (death,) = until_it_ends(engine)
    assert str(death) == "The engine of model m died: its process was ended by SIGKILL (often: out of memory)."
    assert not isinstance(death, EngineHung)
    assert gone(pid)
    assert engine.in_flight() == 0
    with pytest.raises(EngineDied):
        engine.submit(a_profile(), requests_of([chat("x")]))


def test_after_a_death_it_can_be_started_again(fake):
    engine = fake(die_on="poison")
    profile = a_profile()
    (before,) = run_rows(engine, [chat("fine")], profile)
    moved = engine.tokens_moved()
    engine.submit(profile, requests_of([chat("poison")]))
    until_it_ends(engine)
    engine.start()
    (after,) = run_rows(engine, [chat("fine")], profile)
    assert after.text == before.text
    assert engine.tokens_moved() > moved


def test_rows_that_finished_before_a_death_come_back_first(fake):
    engine = fake(die_on="poison", row_latency_s=0.0)
    good = requests_of([chat("a"), chat("b")])
    engine.submit(a_profile(), good)
    time.sleep(0.5)  # they finish while nobody polls
    engine.submit(a_profile(), requests_of([chat("poison")]))
    time.sleep(0.5)
    *results, death = until_it_ends(engine)
    assert sorted(r.id for r in results) == [request.id for request in good]
    assert isinstance(death, EngineDied)


def test_an_engine_that_moves_no_token_hangs_and_is_ended(fake):
    engine = fake(hang_timeout_s=1.0, hang_on="stuck")
    pid = pid_of(engine)
    engine.submit(a_profile(), requests_of([chat("stuck"), chat("behind it")]))
    (hang,) = until_it_ends(engine)
    assert isinstance(hang, EngineHung)
    assert str(hang) == "The engine of model m moved no token for 1 s."
    assert gone(pid)


def test_a_long_row_that_moves_is_no_hang(fake):
    engine = fake(hang_timeout_s=2.0, row_latency_s=3.0)
    (result,) = run_rows(engine, [chat("slow")])
    assert result.finish_reason == "length"


def test_an_idle_engine_is_no_hang(fake):
    engine = fake(hang_timeout_s=0.3)
    assert [engine.poll(0.3) for _ in range(3)] == [[], [], []]


def test_a_caller_who_was_away_sees_no_hang(fake):
    engine = fake(hang_timeout_s=3.0, row_latency_s=0.1)
    engine.submit(a_profile(), requests_of([chat("x")]))
    engine._looked_at -= 3600  # as after a suspended laptop or a stopped process
    assert len(collect(engine, 1)) == 1


def test_stop_ends_all_processes_and_may_be_repeated(fake):
    engine = fake()
    pid = pid_of(engine)
    engine.submit(a_profile(), requests_of([chat("x")] * 100))
    engine.stop()
    assert gone(pid, within_s=0.0)
    engine.stop()
    assert engine.in_flight() == 0


def test_a_start_can_be_begun_and_waited_for_later(tmp_path):
    engine = EngineProcess(a_spec(tmp_path, engine_args={"start_s": 0.5}))
    engine.launch()
    assert engine.ready(0.0) is None
    engine.check_schema('{"type":"string"}')  # answered while it loads
    assert engine.ready(0.0) is None
    assert engine.start().start_s >= 0.5
    engine.stop()


def test_a_start_that_takes_too_long_is_given_up(tmp_path):
    engine = EngineProcess(a_spec(tmp_path, engine_args={"start_s": 60}, start_timeout_s=0.5))
    with pytest.raises(EngineStartFailed, match=r"it was not ready after 0\.5 s"):
        engine.start()


def test_an_unknown_engine_argument_is_named_with_the_nearest(tmp_path):
    engine = EngineProcess(a_spec(tmp_path, engine_args={"max_num_seq": 4}))
    with pytest.raises(EngineStartFailed) as failed:
        engine.start()
    assert failed.value.reason == (
        f"unknown engine argument max_num_seq: did you mean max_num_seqs? (log: {tmp_path / 'engine.log'})"
    )


def test_a_model_that_is_not_there_is_refused_before_anything_is_loaded(tmp_path):
    engine = EngineProcess(a_spec(tmp_path, "vllm", path=str(tmp_path / "nowhere")))
    began = time.monotonic()
    with pytest.raises(EngineStartFailed, match=r"the model folder \S+/nowhere does not exist"):
        engine.start()
    assert time.monotonic() - began < 3


def test_the_fake_engine_warns_in_its_log(fake, tmp_path):
    fake()
    assert "FAKE ENGINE" in (tmp_path / "engine.log").read_text()


CALLER = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from infra.engines import EngineProcess
    from tests.support.engines import a_spec, pid_of
    engine = EngineProcess(a_spec(Path(sys.argv[1])))
    engine.start()
    print(pid_of(engine), flush=True)
    time.sleep(600)
""")


@pytest.mark.parametrize("wedged", [False, True], ids=["engine works", "engine is wedged"])
def test_the_engine_does_not_outlive_a_caller_that_was_killed(tmp_path, wedged):
    command = [sys.executable, "-c", CALLER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as caller:
        pid = int(caller.stdout.readline())
        if wedged:
            os.kill(pid, signal.SIGSTOP)
        assert members(pid)
        caller.kill()
    assert gone(pid)


# ---- the same with real processes of vLLM ---------------------------------------------------------


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", ["VLLM::EngineCore", "VLLM::Worker"])
def test_a_killed_process_of_vllm_is_a_death_that_names_it(tmp_path, victim):
    spec = vllm_spec(tmp_path, "tiny", engine_args={"max_model_len": 512})
    with running(spec) as engine:
        pid, segments = pid_of(engine), shared_memory_of(engine)
        sampling = '{"max_tokens":480,"temperature":0,"ignore_eos":true}'
        engine.submit(a_profile(sampling=sampling), requests_of([chat("Go on.")] * 16))
        engine.poll(0.5)
        (process,) = [p for p in members(pid) if _command(p).startswith(victim)]
        os.kill(process, signal.SIGKILL)
        death = until_it_ends(engine)[-1]
        named = f"{victim.removeprefix('VLLM::')}" in death.reason and "SIGKILL" in death.reason
        # Its core may give up, or end itself, before it sees the worker end.
        gave_up = ("its engine core is dead", "EngineCore: its process ended")
        assert named or any(words in death.reason for words in gave_up)
        assert gone(pid, within_s=0.0)
        assert segments
        assert left_of(segments) == []


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_vllm_names_the_engine_argument_that_it_does_not_have(tmp_path):
    engine = EngineProcess(vllm_spec(tmp_path, "tiny", engine_args={"max_model_length": 512}))
    with pytest.raises(
        EngineStartFailed, match=r"unknown engine argument max_model_length: did you mean max_model_len\?"
    ):
        engine.start()


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
