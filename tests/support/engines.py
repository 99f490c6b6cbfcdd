"""Real engine processes for tests: how to make one, and how to get rows through it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from infra.engines import EngineProcess, EngineSpec
from infra.engines.group import SHARED_MEMORY, group_alive
from infra.engines.several import SeveralEngines, shares
from jobs.ports.engine import EngineRequest, EngineResult, Message, Prompt, RequestProfile
from tests.support.prepared import prepared_model

PATIENCE_S = 120.0
LONG = '"temperature":0,"max_tokens":3500,"ignore_eos":true'
"""Of a row that takes seconds, in the braces of a sampling: to be aborted."""
_ids = itertools.count(1)
_keys = itertools.count(1)


def a_spec(folder: Path, backend: str = "fake", **changes) -> EngineSpec:
    return EngineSpec(
        **{
            "model": "m",
            "kind": "chat",
            "backend": backend,
            "log_path": folder / "engine.log",
            **changes,
        }
    )


def vllm_spec(folder: Path, model: str, **changes) -> EngineSpec:
    """A small cache: the machine that runs the tests has other things to do."""
    path = str(prepared_model(model))
    return a_spec(folder, "vllm", model=model, path=path, cpu_kv_cache_gib=1, **changes)


def shows_tools(model: Path, folder: Path) -> Path:
    """The same model in another folder, with a chat template that tells of tools; chats without any look the same."""
    folder.mkdir(parents=True)
    for file in model.iterdir():
        if file.name != "chat_template.jinja":
            (folder / file.name).symlink_to(file)
    tools = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    calls = "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    template = (model / "chat_template.jinja").read_text(encoding="utf-8")
    shown = template.replace("message['content'] +", "(message['content'] or '') +", 1)
    assert shown != template
    shown = shown.replace("'<|im_end|>' + '", "'' }}" + calls + "{{ '<|im_end|>' + '", 1)
    (folder / "chat_template.jinja").write_text(tools + shown, encoding="utf-8")
    return folder


@contextmanager
def running_several(spec: EngineSpec, count: int) -> Iterator[SeveralEngines]:
    """The same of so many processes behind one port."""
    several = SeveralEngines(shares(spec, count))
    several.start()
    pids = [pid_of(engine) for engine in several._engines]
    segments = [name for engine in several._engines for name in shared_memory_of(engine)]
    try:
        yield several
    finally:
        several.stop()
    assert not any(group_alive(pid) for pid in pids)
    assert left_of(segments) == []


@contextmanager
def running(spec: EngineSpec) -> Iterator[EngineProcess]:
    """A started engine that leaves nothing behind."""
    engine = EngineProcess(spec)
    engine.start()
    pid, segments = pid_of(engine), shared_memory_of(engine)
    try:
        yield engine
    finally:
        engine.stop()
    assert not group_alive(pid)
    assert left_of(segments) == []


def pid_of(engine: EngineProcess) -> int:
    assert engine._child is not None
    return engine._child.pid


def shared_memory_of(engine: EngineProcess) -> set[str]:
    assert engine._child is not None
    return set(engine._child._segments)


def left_of(segments: Iterable[str]) -> list[str]:
    return [name for name in segments if (SHARED_MEMORY / name).exists()]


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether the engine's whole group ends within the time."""
    deadline = time.monotonic() + within_s
    while group_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def a_profile(kind: str = "chat", **changes) -> RequestProfile:
    return RequestProfile(
        **{"key": f"profile-{next(_keys)}", "kind": kind, "sampling": '{"temperature":0,"max_tokens":8}', **changes}
    )


def chat(user: str, system: str = "You are brief.") -> tuple[Message, ...]:
    return (("system", system), ("user", user))


def requests_of(prompts: Sequence[Prompt]) -> list[EngineRequest]:
    return [EngineRequest(next(_ids), prompt) for prompt in prompts]


def collect(engine: EngineProcess, count: int, within_s: float = PATIENCE_S) -> list[EngineResult]:
    """This many results, by id; fails rather than wait for ever."""
    results: list[EngineResult] = []
    deadline = time.monotonic() + within_s
    while len(results) < count:
        assert time.monotonic() < deadline, f"{len(results)} of {count} rows after {within_s} s"
        results += engine.poll(1.0)
    return sorted(results, key=lambda result: result.id)


def run_rows(
    engine: EngineProcess, prompts: Sequence[Prompt], profile: RequestProfile | None = None
) -> list[EngineResult]:
    """The results of these prompts, in their order."""
    requests = requests_of(prompts)
    engine.submit(profile or a_profile(engine.spec.kind), requests)
    return collect(engine, len(requests))
