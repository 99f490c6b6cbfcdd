"""The engine stays full until a job's end: counted at each step of the fake engine's clockwork, on simulated time.

The rows take 8 to 47 times `token_latency_s`, so that seats become free one by one.
"""

import pytest

from infra.engines.fake_args import FakeArgs
from tests.support.simulated import a_simulation

pytestmark = pytest.mark.unit


def shares_until(simulation, rows, share):
    """Of the seats, at each step from the first full engine until so much of the job is done."""
    while simulation.worker.tally.rows < rows * share:
        simulation.step()
    seats = simulation.engine.start().max_num_seqs
    counts = simulation.engine.counts
    first = counts.index(seats)
    return [count / seats for count in counts[first:]]


@pytest.mark.parametrize(
    ("seats", "token_latency_s", "tasks", "rows"),
    [
        pytest.param(64, 0.01, 12, 400, id="tasks of two seconds"),
        pytest.param(64, 0.01, 150, 32, id="tasks of a seventh of a second"),
        pytest.param(64, 0.002, 40, 256, id="a fast engine"),
        pytest.param(8, 0.05, 6, 100, id="a slow one"),
        pytest.param(1, 0.001, 6, 64, id="a single seat"),
    ],
)
def test_the_engine_stays_full_until_the_last_twentieth_of_a_job(seats, token_latency_s, tasks, rows):
    args = FakeArgs(max_num_seqs=seats, token_latency_s=token_latency_s)
    simulation = a_simulation(tasks=tasks, rows=rows, args=args)
    shares = shares_until(simulation, tasks * rows, 0.95)
    assert min(shares) >= 0.95, (min(shares), sum(shares) / len(shares), len(shares))
    # What it starts in two seconds, or two windows; the task that filled it; and the finished rows of open tasks.
    pace = simulation.worker.tally.rows / simulation.clock.monotonic()
    assert max(simulation.held) <= max(2 * pace, 2 * 1.75 * seats) * 1.25 + 2 * rows
