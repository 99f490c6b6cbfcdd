"""jobs/retry.py: what a death of the engine means for a task, and how long to wait for what is away."""

import pytest

from jobs.retry import Backoff, Fate, PoisonPolicy, after_death
from tests.support.values import a_leased_task, span

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("rows", "suspect", "alone_deaths", "in_engine", "fate"),
    [
        pytest.param(10, False, 0, 0, Fate.AGAIN, id="a task without rows inside is not struck"),
        pytest.param(10, True, 0, 0, Fate.AGAIN, id="not even a suspect one"),
        pytest.param(10, False, 0, 4, Fate.APART, id="the first death sets the rows that were inside apart"),
        pytest.param(1, False, 0, 1, Fate.APART, id="a lone row, too, must first be alone in the engine"),
        pytest.param(10, True, 0, 10, Fate.HALVE, id="a suspect that kills again is halved"),
        pytest.param(10, True, 0, 2, Fate.HALVE, id="of a suspect only what was inside is halved"),
        pytest.param(10, True, 0, 1, Fate.APART, id="one row inside, others not, is cut out of its task"),
        pytest.param(1, True, 0, 1, Fate.AGAIN, id="a row that killed alone once gets one more try"),
        pytest.param(1, True, 1, 1, Fate.DEAD, id="a row that killed alone twice is given up"),
    ],
)
def test_a_death_of_the_engine(rows, suspect, alone_deaths, in_engine, fate):
    task = a_leased_task(ranges=span(0, rows), suspect=suspect, alone_deaths=alone_deaths)
    assert after_death(task, in_engine=in_engine, policy=PoisonPolicy(deaths_alone=2)) is fate


def test_a_stricter_policy_gives_a_row_up_at_its_first_death_alone():
    row = a_leased_task(ranges=span(0, 1), suspect=True)
    assert after_death(row, in_engine=1, policy=PoisonPolicy(deaths_alone=1)) is Fate.DEAD


def test_waits_double_up_to_the_longest_and_end_after_the_last_attempt():
    backoff = Backoff(first_s=0.5, factor=2.0, max_s=3.0, attempts=6)
    assert [backoff.wait_s(n) for n in range(1, 8)] == [0.5, 1.0, 2.0, 3.0, 3.0, None, None]
