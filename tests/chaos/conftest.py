"""The pool in which runs go on beside each other, what they are compared with, and the claims that are asked for."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.plans import VARIANTS
from tests.chaos.stage import Stage, quiet_run

PARALLEL = int(os.environ.get("CHAOS_PARALLEL", "3"))


@pytest.fixture(scope="session")
def pool():
    with ThreadPoolExecutor(PARALLEL) as threads:
        yield threads


@pytest.fixture(scope="session")
def quiet(pool, tmp_path_factory):
    """Variant name → its quiet run."""
    root = tmp_path_factory.mktemp("quiet")
    runs = {name: pool.submit(quiet_run, root / name, variant) for name, variant in VARIANTS.items()}
    return {name: run.result() for name, run in runs.items()}


@pytest.fixture(scope="session")
def claimed(request, pool, quiet, tmp_path_factory):
    """claim → its run, of all claims that are asked for in this session."""
    root = tmp_path_factory.mktemp("claims")
    asked = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = [params["claim"] for params in asked if "claim" in params]
    stages = [Stage(folder=root / f"claim-{number}", quiet=quiet) for number in range(len(wanted))]
    return {claim: pool.submit(claim, stage) for claim, stage in zip(wanted, stages, strict=True)}
