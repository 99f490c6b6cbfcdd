"""Engine arguments that do not exist are known before an engine starts."""

import sys
import types

import pytest

from infra.engines import known_args
from infra.engines.known_args import check_engine_args, vllm_arguments
from jobs.errors import BadInput
from tests.support.prepared import missing

pytestmark = pytest.mark.unit

SOURCE = """
class EngineArgs:
    model: str = "m"
    max_num_seqs: int | None = None
    plain = 1
    def seed(self): ...

class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
"""


@pytest.fixture
def vllm(tmp_path, monkeypatch):
    """Writes a vllm of this source, and puts it where vLLM is looked for."""

    def write(text):
        (tmp_path / "engine").mkdir()
        (tmp_path / "engine/arg_utils.py").write_text(text)
        monkeypatch.setattr(
            known_args, "find_spec", lambda _: types.SimpleNamespace(origin=str(tmp_path / "__init__.py"))
        )

    return write


def test_the_names_are_read_from_the_source(vllm):
    vllm(SOURCE)
    assert vllm_arguments() == ["model", "max_num_seqs", "enable_log_requests"]
    check_engine_args("vllm", {"max_num_seqs": 4, "tool_call_parser": "x"}, source="it")


@pytest.mark.parametrize("text", ["class EngineArgs: ...", "not python", ""])
def test_a_source_that_is_made_otherwise_refuses_nothing(vllm, text):
    vllm(text)
    assert vllm_arguments() == []
    check_engine_args("vllm", {"anything": 1}, source="it")


def test_without_vllm_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(known_args, "find_spec", lambda _: None)
    check_engine_args("vllm", {"anything": 1}, source="it")


@pytest.mark.parametrize(
    ("engine", "given", "reason"),
    [
        ("vllm", {"max_num_seq": 1}, "unknown engine argument max_num_seq: did you mean max_num_seqs?"),
        ("fake", {"max_num_seq": 1}, "unknown engine argument max_num_seq: did you mean max_num_seqs?"),
        ("fake", {"max_num_seqs": "x"}, "max_num_seqs must be a whole number, not 'x'"),
    ],
)
def test_one_that_does_not_exist_is_named_with_its_nearest(vllm, engine, given, reason):
    vllm(SOURCE)
    with pytest.raises(BadInput) as caught:
        check_engine_args(engine, given, source="--engine-arg")
    assert (caught.value.source, caught.value.reason) == ("--engine-arg", reason)


def test_vllm_s_own_source_is_understood_and_not_imported():
    if known_args.find_spec("vllm") is None:
        missing("vLLM is not installed")
    before = "vllm" in sys.modules
    names = vllm_arguments()
    assert (len(names) > 100, "max_num_seqs" in names, "vllm" in sys.modules) == (True, True, before)
