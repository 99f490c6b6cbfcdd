"""infra/engines/several.py: several engine processes behind one port; what is different from one."""

import os
import signal

import pytest

from infra.engines.environment import is_cpu_build
from infra.engines.several import SeveralEngines, shares
from jobs.errors import EngineDied, EngineStartFailed
from tests.support.engines import a_profile, a_spec, chat, collect, pid_of, requests_of, run_rows, running_several

pytestmark = pytest.mark.contract


@pytest.fixture
def pair(tmp_path):
    with running_several(a_spec(tmp_path, engine_args={"max_num_seqs": 8, "row_latency_s": 0.05}), 2) as started:
        yield started


def died(engines, requests):
    """The results that came before the death was told, and the death."""
    found = []
    while True:
        try:
            found += engines.poll(1.0)
        except EngineDied as death:
            return found, death
        assert len(found) < len(requests)


def test_a_worker_has_the_seats_of_all_of_them(pair):
    assert pair.start().max_num_seqs == 16


def test_rows_go_to_the_emptiest_in_small_stretches_of_neighbours(pair):
    requests = requests_of([chat(f"row {n}") for n in range(16)])
    pair.submit(a_profile(), requests)
    inside = [sorted(engine._inside) for engine in pair._engines]
    ids = [request.id for request in requests]
    assert inside == [[*ids[0:2], *ids[4:6], *ids[8:10], *ids[12:14]], [*ids[2:4], *ids[6:8], *ids[10:12], *ids[14:16]]]
    assert [result.id for result in collect(pair, 16)] == ids


def test_an_abort_reaches_the_one_that_has_the_row(pair):
    requests = requests_of([chat(f"row {n}") for n in range(64)])
    pair.submit(a_profile(), requests)
    pair.abort([requests[-1].id, requests[-3].id])
    ended = {result.id: result.finish_reason for result in collect(pair, 64)}
    assert sorted(row for row, reason in ended.items() if reason == "abort") == [requests[-3].id, requests[-1].id]


def test_the_death_of_one_ends_all_and_they_can_be_started_again(pair):
    pids = [pid_of(engine) for engine in pair._engines]
    requests = requests_of([chat(f"row {n}") for n in range(200)])
    pair.submit(a_profile(), requests)
    os.kill(pids[1], signal.SIGKILL)
    _, death = died(pair, requests)
    assert "SIGKILL" in death.sentence
    assert (pair.in_flight(), [engine._child for engine in pair._engines]) == (0, [None, None])
    with pytest.raises(EngineDied):
        pair.submit(a_profile(), requests_of([chat("too late")]))
    pair.start()
    assert len(run_rows(pair, [chat(f"row {n}") for n in range(20)])) == 20


def test_one_that_cannot_start_ends_the_start_of_all(tmp_path):
    good, bad = shares(a_spec(tmp_path, engine_args={"max_num_seqs": 8}), 2)
    several = SeveralEngines([good, a_spec(tmp_path, engine_args={"max_num_seqs": 0})])
    with pytest.raises(EngineStartFailed, match="max_num_seqs"):
        several.start()
    assert [engine._child for engine in several._engines] == [None, None]
    assert bad.log_path.name == "engine-1.log"


def test_they_share_what_one_would_have(tmp_path):
    spec = a_spec(tmp_path, "vllm", cpu_kv_cache_gib=4)
    first, second = shares(spec, 2)
    assert (first.cpu_kv_cache_gib, second.cpu_kv_cache_gib) == (2, 2)
    if not is_cpu_build():
        assert first.engine_args == {"gpu_memory_utilization": 0.45}
    elif len(os.sched_getaffinity(0)) >= 2:
        cores = [set(each.env["VLLM_CPU_OMP_THREADS_BIND"].split(",")) for each in (first, second)]
        assert cores[0].isdisjoint(cores[1])
        assert cores[0] | cores[1] == {str(cpu) for cpu in os.sched_getaffinity(0)}
