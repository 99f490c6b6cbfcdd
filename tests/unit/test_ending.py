"""jobs/ending.py: when a job pauses by itself, and what state it ends in."""

import pytest

from jobs.ending import PauseRule, final_state, open_tasks, why_pause
from jobs.model import JobState, TaskState
from tests.support.values import a_job, a_spec, a_usage

pytestmark = pytest.mark.unit

RULE = PauseRule(least_rows=100)
BUSY = {TaskState.QUEUED: 1}
IDLE = {TaskState.DONE: 1, TaskState.SPLIT: 1, TaskState.VOID: 1}


def job_with(outcomes, **spec):
    return a_job(usage=a_usage(outcomes=outcomes), spec=a_spec(pause_on=0.2, **spec))


def sampling(**changes):
    return a_job(spec=a_spec(sample=50), **{"planned": False, "next_segment": 1, **changes})


def test_more_than_the_allowed_share_of_spoiled_rows_pauses_the_job_with_the_figures():
    reason = "30 of 100 rows (30%) are errors or truncated, more than --pause-on 20%"
    assert why_pause(job_with({"ok": 70, "error": 20, "truncated": 10}), BUSY, RULE) == reason


@pytest.mark.parametrize(
    "outcomes",
    [
        pytest.param({"ok": 80, "error": 20}, id="exactly the share"),
        pytest.param({"error": 99}, id="too few rows to judge by"),
        pytest.param({"ok": 70, "refused": 30}, id="refusals are answers"),
        pytest.param({}, id="nothing done yet"),
    ],
)
def test_a_job_goes_on_with(outcomes):
    assert why_pause(job_with(outcomes), BUSY, RULE) is None


def test_rows_that_were_seen_when_a_person_resumed_do_not_count_again():
    job = job_with({"ok": 100, "error": 100})
    assert why_pause(job, BUSY, RULE) is not None
    assert why_pause(job, BUSY, RULE.evolve(seen=a_usage(outcomes={"error": 100}))) is None
    assert why_pause(job, BUSY, RULE.evolve(seen=a_usage(outcomes={"ok": 90, "error": 0}))) is not None


def test_a_job_without_a_limit_never_pauses_for_its_errors():
    job = a_job(spec=a_spec(pause_on=None), usage=a_usage(outcomes={"error": 10_000}))
    assert why_pause(job, BUSY, RULE) is None


def test_a_job_pauses_once_its_sample_is_done():
    reason = "the sample of 50 rows is done; look at the results, then resume for the rest"
    assert why_pause(sampling(), IDLE, RULE) == reason


@pytest.mark.parametrize(
    ("job", "counts", "rule"),
    [
        pytest.param(sampling(), BUSY, RULE, id="while sample tasks are open"),
        pytest.param(sampling(next_segment=0), {}, RULE, id="before the sample is planned"),
        pytest.param(sampling(planned=True), IDLE, RULE, id="when the sample was the whole job"),
        pytest.param(sampling(next_segment=2), IDLE, RULE, id="later on"),
        pytest.param(sampling(), IDLE, RULE.evolve(after_sample=False), id="once a person resumed it"),
    ],
)
def test_a_sample_does_not_pause(job, counts, rule):
    assert why_pause(job, counts, rule) is None


def test_queued_released_and_leased_tasks_are_open():
    assert open_tasks(dict.fromkeys(TaskState, 1)) == 3
    assert open_tasks({}) == 0


@pytest.mark.parametrize(
    ("job", "outcomes", "end"),
    [
        pytest.param(a_job(), {"ok": 9, "error": 1}, (JobState.COMPLETED, ""), id="some errors"),
        pytest.param(a_job(), {"error": 10}, (JobState.FAILED, "every row is an error"), id="nothing but errors"),
        pytest.param(
            a_job(state=JobState.PAUSED, reason="spoiled"), {"ok": 10}, (JobState.COMPLETED, ""), id="paused at the end"
        ),
        pytest.param(
            a_job(state=JobState.CANCELLING, reason="by alice"),
            {"error": 9, "cancelled": 1},
            (JobState.CANCELLED, "by alice"),
            id="cancelled",
        ),
        pytest.param(
            a_job(state=JobState.CANCELLING, reason="by alice"),
            {"ok": 10},
            (JobState.COMPLETED, ""),
            id="cancelled after its last row",
        ),
        pytest.param(
            a_job(state=JobState.EXPIRING, reason="its deadline passed"),
            {"ok": 9, "expired": 1},
            (JobState.EXPIRED, "its deadline passed"),
            id="expired",
        ),
    ],
)
def test_a_job_ends_as(job, outcomes, end):
    assert final_state(job, a_usage(rows=10, outcomes=outcomes)) == end


def test_a_job_without_rows_is_completed():
    assert final_state(a_job(), a_usage(rows=0, outcomes={})) == (JobState.COMPLETED, "")
