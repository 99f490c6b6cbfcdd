"""The cluster that the seeds of this folder share, and the quiet runs that they are compared with."""

import gc
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.prepared import missing

if find_spec("ray") is not None:
    from tests.chaos_cluster.plans import Plan
    from tests.chaos_cluster.play import play
    from tests.chaos_cluster.site import opened


@pytest.fixture(scope="module")
def no_litter():
    """kafka-python 3.0 leaves sockets of failed connections to the garbage collector: here, not in another test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def site(no_litter, kafka, postgres, s3, tmp_path_factory):
    """Up once for all seeds; a fault leaves it whole."""
    if find_spec("ray") is None:
        missing("Ray is not installed: pip install -e '.[cluster]'")
    folder = Path(os.environ.get("CHAOS_KEEP") or tmp_path_factory.mktemp("site"))
    folder.mkdir(parents=True, exist_ok=True)
    with postgres.database() as database:
        up = opened(folder, kafka, database, s3)
        yield up
        up.close()


@pytest.fixture(scope="module")
def quiet(site):
    """rows → what a job of so many rows comes to when nothing dies; the checker itself is held against it."""
    known = {}

    def ended(rows):
        if rows not in known:
            told = play(Plan(seed=0, rows=rows, ordered=False, faults=()), site, None)
            print(f"quiet: {told}")
            assert told.wrong == []
            known[rows] = told.ended
        return known[rows]

    return ended
