"""jobs/figures.py and infra/metrics: the table of figures, their samples, and the files by which they are found."""

import socket

import pytest

from infra.locks import FileLock
from infra.metrics import read_targets, sweep, write_targets
from infra.metrics.exposition import Figures
from jobs.errors import DatabaseUnavailable
from jobs.figures import FIGURES, Histogram, Kind, Sample

pytestmark = pytest.mark.unit


def collected(*sources):
    """(sample name, labels but those of buckets) → value, without what every process shows."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in Figures(sources).collect()
        for sample in family.samples
        if family.name != "nightmill_build_info"
    }


# ---- the table ------------------------------------------------------------------------------------


def test_names_say_their_unit_and_that_they_count():
    counters = {f.name for f in FIGURES if f.kind is Kind.COUNTER}
    assert counters == {f.name for f in FIGURES if f.name.endswith("_total")}
    assert len({f.name for f in FIGURES}) == len(FIGURES)
    assert [f.name for f in FIGURES if not f.name.startswith("nightmill_") or not f.help.endswith(".")] == []


def test_no_label_names_a_tenant_a_job_a_task_or_a_row():
    assert {label for f in FIGURES for label in f.labels} == set(
        "pool worker priority state phase cause reason outcome class currency version model".split()
    )


# ---- histograms -----------------------------------------------------------------------------------


def test_a_histogram_counts_what_is_not_above_each_bound():
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.note(value)
    assert (histogram.buckets(), histogram.total) == ([("0.1", 2), ("1", 3), ("+Inf", 4)], pytest.approx(7.65))


def test_two_histograms_add_up():
    one, other = Histogram((1.0,)), Histogram((1.0,))
    one.note(0.5)
    other.note(2.0)
    both = one.plus(other)
    assert (both.buckets(), both.total) == ([("1", 1), ("+Inf", 2)], 2.5)


# ---- samples --------------------------------------------------------------------------------------


def test_samples_of_equal_labels_add_up_and_of_a_peak_the_largest_is_shown():
    def one():
        return [Sample("nightmill_leases", 3, ("p",)), Sample("nightmill_outbox_oldest_seconds", 9, ("p",))]

    def other():
        return [Sample("nightmill_leases", 4, ("p",)), Sample("nightmill_outbox_oldest_seconds", 5, ("p",))]

    assert collected(one, other) == {
        ("nightmill_leases", ("pool", "p")): 7,
        ("nightmill_outbox_oldest_seconds", ("pool", "p")): 9,
    }


@pytest.mark.parametrize("fault", [DatabaseUnavailable(where="db", reason="away"), RuntimeError("our own")])
def test_a_source_that_fails_hides_no_other(fault):
    def broken():
        raise fault

    assert collected(broken, lambda: [Sample("nightmill_dead_letters", 2)]) == {("nightmill_dead_letters",): 2}


# ---- files ------------------------------------------------------------------------------------------


def test_what_a_killed_process_left_is_swept_and_what_lives_or_is_elsewhere_stays(tmp_path):
    here = socket.gethostname()
    for name in (f"dead-1@{here}", f"alive-2@{here}", "far-3@elsewhere"):
        write_targets(tmp_path / f"{name}.json", [(f"{name}:1", {})])
        (tmp_path / f"{name}.lock").write_text("1\n")
    with FileLock(tmp_path / f"alive-2@{here}.lock"):
        sweep(tmp_path)
        assert read_targets(tmp_path) == {f"alive-2@{here}:1", "far-3@elsewhere:1"}
    assert read_targets(tmp_path, but="far-3@elsewhere.json") == {f"alive-2@{here}:1"}
