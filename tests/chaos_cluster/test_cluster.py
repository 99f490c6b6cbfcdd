"""A cluster under seeded faults: every row once, the ledger as if nothing had happened, nothing left open.

CHAOS_SEEDS: how many seeds (5). CHAOS_LARGE: how many large ones besides (0). CHAOS_ROWS: rows of the small ones
(5000). CHAOS_SEED: only these, by commas. CHAOS_KEEP=FOLDER: where logs and timelines lie afterwards.
`make chaos-cluster` runs 50 of 20,000 rows and 3 of 200,000. Each prints its plan before it runs, and the command that
plays it again.
"""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec

import pytest

from tests.chaos_cluster import checker
from tests.chaos_cluster.counting import Count
from tests.chaos_cluster.plans import LARGE_FROM, Plan, plan

if find_spec("ray") is not None:
    from tests.chaos_cluster.play import play
    from tests.chaos_cluster.strikes import found

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),  # see no_litter
]

ROWS = int(os.environ.get("CHAOS_ROWS", "5000"))
SMALL = range(int(os.environ.get("CHAOS_SEEDS", "5")))
LARGE = range(LARGE_FROM, LARGE_FROM + int(os.environ.get("CHAOS_LARGE", "0")))
ASKED = [int(seed) for seed in os.environ.get("CHAOS_SEED", "").split(",") if seed]
SEEDS = ASKED or [*SMALL, *LARGE]
CLAIM_ROWS = 5000
TOPIC = "chaos.batch.normal"
"""The one that jobs of normal priority are in."""


def planned(seed: int) -> Plan:
    return plan(seed, 0 if seed >= LARGE_FROM else ROWS)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_dies_every_row_is_there_once_and_paid_for_once(seed, site, quiet):
    chosen = planned(seed)
    print(f"{chosen}\nagain: make chaos-cluster SEED={seed} CHAOS_ROWS={ROWS}", flush=True)
    told = play(chosen, site, quiet(chosen.rows))
    print(told)
    assert told.wrong == []


# ---- what costs a delay and nothing else --------------------------------------------------------------


def half_done(site, quiet):
    """A job of which about a third is committed, and a count from its beginning. The quiet run that it is held against
    comes before: its rows must not be in the count.
    """
    quiet(CLAIM_ROWS)
    count = Count(ask=site.reports)
    job = site.submit(CLAIM_ROWS)
    site.until(lambda: site.standing(job).rows >= CLAIM_ROWS // 3, "a third of the rows")
    return job, count


def costs_nothing(site, quiet, job):
    """What a drained worker did last it tells nobody, but what it gave up it books."""
    site.until(lambda: site.is_over(job), "the end of the job", 300)
    ended = checker.read(site.home.store, job.id, site.folder_of(job))
    assert checker.faults(ended, rows=CLAIM_ROWS, quiet=quiet(CLAIM_ROWS)) == []
    assert ended.wasted_tokens == 0


def generates_nothing_twice(site, quiet, job, count):
    costs_nothing(site, quiet, job)
    count.look()
    assert count.rows == CLAIM_ROWS


def test_a_topic_that_is_deleted_under_a_running_job_costs_a_delay_only(site, quiet):
    job, count = half_done(site, quiet)
    site.home.broker.delete_topic(TOPIC)
    generates_nothing_twice(site, quiet, job, count)


def test_a_dispatcher_and_the_scheduler_that_are_killed_cost_a_delay_only(site, quiet):
    job, count = half_done(site, quiet)
    for role in ("dispatcher", "scheduler"):
        found(role)[0].kill()
    generates_nothing_twice(site, quiet, job, count)


def test_a_drained_worker_and_one_with_sigterm_lose_and_repeat_nothing(site, quiet):
    site.until(lambda: len(site.workers()) == 2, "two workers")
    job, _ = half_done(site, quiet)
    first, second = site.workers()
    assert site.command("drain", first["name"]) == 0
    os.kill(second["pid"], signal.SIGTERM)
    costs_nothing(site, quiet, job)


def test_a_rolling_restart_of_all_workers_loses_and_repeats_nothing(site, quiet):
    site.until(lambda: len(site.workers()) == 2, "two workers")
    before = {worker["name"] for worker in site.workers()}
    job, _ = half_done(site, quiet)
    assert site.command("restart", "batch") == 0
    costs_nothing(site, quiet, job)
    site.until(lambda: not before & {worker["name"] for worker in site.workers()}, "other workers")
