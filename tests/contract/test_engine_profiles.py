"""The engine port under ever new profiles, as requests bring them: rows keep theirs, and memory stays flat."""

import json
from pathlib import Path

import pytest

from infra.engines import known_profiles
from tests.support.engines import a_profile, a_spec, chat, collect, pid_of, requests_of, running, running_several

pytestmark = pytest.mark.contract
ROUNDS = 5
MANY = 10_000
AT_ONCE = 100


@pytest.fixture
def few_known(engine, monkeypatch):
    """An engine whose processes know three profiles at most."""
    for one in getattr(engine, "_engines", [engine]):
        monkeypatch.setattr(one._profiles, "_most", 3)
    return engine


def of_length(tokens: int):
    return a_profile(key=f"of-length-{tokens}", sampling=f'{{"temperature":0,"max_tokens":{tokens}}}')


def test_rows_have_their_own_profile_while_others_crowd_it_out_and_when_it_comes_again(few_known):
    """All are inside at once, and each profile is forgotten in every round."""
    wanted = {}
    for _ in range(ROUNDS):
        for tokens in range(1, 7):
            (request,) = requests_of([chat("Tell me of the sea.")])
            few_known.submit(of_length(tokens), [request])
            wanted[request.id] = tokens
    results = collect(few_known, len(wanted))
    assert {result.id: result.output_tokens for result in results} == wanted


def grown_mib(pids: list[int], before: list[float]) -> list[float]:
    return [round(now - then, 1) for now, then in zip(resident_mib(pids), before, strict=True)]


def resident_mib(pids: list[int]) -> list[float]:
    return [int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) / 256 for pid in pids]


def ask_each_its_own(engine, count: int, padding: str) -> None:
    """So many rows, each with a profile of its own that is a few kilobytes long."""
    for at in range(0, count, AT_ONCE):
        for n in range(at, at + AT_ONCE):
            schema = json.dumps({"const": n, "description": padding})
            engine.submit(a_profile(schema=schema), requests_of(["?"]))
        collect(engine, AT_ONCE)


@pytest.mark.parametrize("count", [1, 2], ids=["one process", "two processes"])
def test_ten_thousand_profiles_leave_memory_flat_on_both_sides(tmp_path, count):
    """Kept, they would take 80 MB in each process, and more for what is made of them."""
    spec = a_spec(tmp_path, kind="completion", engine_args={"max_num_seqs": AT_ONCE})
    with running(spec) if count == 1 else running_several(spec, count) as engine:
        engines = getattr(engine, "_engines", [engine])
        pids = [pid_of(one) for one in engines]
        ask_each_its_own(engine, 2 * known_profiles.MOST * count, "x" * 8000)
        before = resident_mib(pids)
        ask_each_its_own(engine, MANY, "y" * 8000)
        assert max(grown_mib(pids, before)) < 20
        assert max(len(one._profiles) for one in engines) <= known_profiles.MOST
