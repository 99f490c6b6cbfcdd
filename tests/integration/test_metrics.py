"""infra/metrics: a real HTTP server, read as Prometheus reads it, and what lists it."""

import json
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra.metrics import MetricsPolicy, Shown, serve
from jobs.figures import Histogram, Sample

pytestmark = pytest.mark.integration


@pytest.fixture
def policy(tmp_path):
    return MetricsPolicy(first_port=_free_port(), bind="127.0.0.1", address="box", folder=tmp_path / "metrics")


@pytest.fixture
def shown():
    opened = []
    yield opened
    for one in opened:
        one.close()


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def read(target):
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_every_kind_is_read_by_prometheus_own_parser(policy, shown):
    histogram = Histogram((1.0,))
    histogram.note(0.5)
    samples = [
        Sample("nightmill_database_up", 1),
        Sample("nightmill_outbox_oldest_seconds", 2.5, ('a "pool"',)),
        Sample("nightmill_rows_total", 7, ("p", "w", "ok")),
        Sample("nightmill_commit_seconds", histogram, ("p", "w")),
    ]
    shown.append(serve(policy, {"role": "run"}, [lambda: samples]))
    families = {f.name: f for f in text_string_to_metric_families(read(shown[0].target))}
    ours = {name: f.type for name, f in families.items() if name.startswith("nightmill_")}
    assert ours == {
        "nightmill_database_up": "gauge",
        "nightmill_outbox_oldest_seconds": "gauge",
        "nightmill_rows": "counter",
        "nightmill_commit_seconds": "histogram",
        "nightmill_build_info": "gauge",
    }
    assert families["nightmill_outbox_oldest_seconds"].samples[0].labels == {"pool": 'a "pool"'}
    assert "process_resident_memory_bytes" in families


# ---- ports and files ------------------------------------------------------------------------------


def test_processes_take_ports_that_follow_each_other_and_each_has_its_own_figures(policy, shown):
    for number in range(2):
        sources = [lambda n=number: [Sample("nightmill_dead_letters", n)]]
        shown.append(serve(policy, {"role": f"r{number}"}, sources))
    assert len({one.target for one in shown}) == 2
    assert [f"nightmill_dead_letters {n}.0" in read(one.target) for n, one in enumerate(shown)] == [True, True]


def test_what_is_shown_is_listed_as_file_sd_wants_it_and_goes_from_the_list(policy, shown):
    one = serve(policy, {"role": "worker", "pool": "p"}, [])
    files = [json.loads(file.read_text()) for file in policy.folder.glob("*.json")]
    assert files == [[{"targets": [one.target], "labels": {"role": "worker", "pool": "p"}}]]
    one.close()
    one.close()
    assert [*policy.folder.iterdir()] == []


def test_a_process_that_listens_everywhere_is_listed_by_the_machine_s_address(policy, shown):
    shown.append(serve(policy.evolve(bind="0.0.0.0"), {"role": "worker"}, []))
    near = serve(policy, {"role": "worker"}, [])
    shown.append(near)
    assert shown[0].target.startswith("box:")
    assert [one.is_far_off for one in shown] == [True, False]


def test_nothing_is_shown_where_no_port_is_given_or_the_address_is_not_ours(policy):
    assert serve(policy.evolve(first_port=0), {"role": "run"}, []) == Shown()
    assert serve(policy.evolve(bind="192.0.2.1"), {"role": "run"}, []) == Shown()
    assert not policy.folder.exists()


def test_a_folder_that_cannot_be_written_costs_the_list_and_not_the_figures(policy, shown):
    policy.folder.write_text("a file")
    shown.append(serve(policy, {"role": "run"}, []))
    assert "nightmill_build_info" in read(shown[0].target)
