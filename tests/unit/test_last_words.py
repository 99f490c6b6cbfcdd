"""From a log to the sentence that says why an engine did not start or died."""

import pytest

from infra.engines.last_words import death_reason, exit_words, read_tail, start_reason, useful_error

pytestmark = pytest.mark.unit

VLLM_LOG = """\
(EngineCore pid=12) INFO 11-29 15:10:59 [core.py:133] Initializing a V1 LLM engine
(EngineCore pid=12) ERROR 11-29 15:11:01 [core.py:1512] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-29 15:11:01 [core.py:1512]   File "worker.py", line 1, in load
(EngineCore pid=12) ERROR 11-29 15:11:01 [core.py:1512] ValueError: Available memory on node 0 is less than requested
Traceback (most recent call last):
  File "core_client.py", line 1, in start
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
""".splitlines()
CAUSE = "ValueError: Available memory on node 0 is less than requested"


def test_the_root_cause_is_the_first_exception_that_says_something():
    assert useful_error(VLLM_LOG) == CAUSE


def test_without_an_exception_the_last_lines_have_to_do():
    assert useful_error(["one", "", "two", "three", "four"]) == "two / three / four"
    assert useful_error([]) == ""


def test_the_engines_own_report_is_the_reason_of_a_failed_start_unless_it_only_points_to_the_log():
    assert start_reason("no such model", VLLM_LOG, 70) == "no such model"
    assert start_reason("RuntimeError: Engine core initialization failed. See root cause above.", VLLM_LOG, 70) == CAUSE
    assert start_reason("", [], None) == "it gave no reason"


def test_a_signal_during_the_start_is_named_with_the_last_words():
    words = "its process was ended by SIGKILL (often: out of memory)"
    assert start_reason("", [], -9) == words
    assert start_reason("", ["loading"], -9) == f"{words}; last words: loading"


def test_a_death_names_the_worker_that_ended():
    log = ["… Worker proc VllmWorker-0 died unexpectedly (exit code: -11), shutting down executor."]
    assert death_reason("vLLM reports …", log, 71) == "VllmWorker-0: its process was ended by SIGSEGV"


def test_a_death_without_a_report_is_told_by_the_exit():
    assert death_reason("", [], -9) == "its process was ended by SIGKILL (often: out of memory)"
    assert death_reason("", [], None) == "it closed its connection"
    assert (
        death_reason("EngineCore: …", ["RuntimeError: shapes"], 71) == "EngineCore: …; last words: RuntimeError: shapes"
    )


def test_an_exit_is_put_in_words():
    assert exit_words(3) == "its process ended with exit code 3"
    assert exit_words(-250) == "its process was ended by signal 250"


def test_only_the_lines_of_this_start_are_read(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"old\n\xffnew\n")
    assert read_tail(log, 4) == ["\ufffdnew"]
    assert read_tail(tmp_path / "none", 0) == []
