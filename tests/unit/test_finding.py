"""workers/finding.py: which doors a model has, and whom requests for it wake."""

import pytest

from jobs.pools import Pool
from workers.finding import PoolWays

pytestmark = pytest.mark.unit

BATCH, BOTH = Pool(name="batch", model="m"), Pool(name="both", model="m", requests=True)
TALK = Pool(name="talk", model="m", purpose="interactive")


def test_doors_come_by_pool_in_the_order_in_which_pools_are_asked_and_the_first_pool_grows():
    asks = []
    ways = PoolWays(
        pools=[BATCH, BOTH, TALK],
        doors_of=lambda pool: [f"door of {pool}"],
        ask=lambda pool, short: asks.append((pool, short)) or 3.0,
    )
    assert ways.models() == ["m"]
    assert ways.doors("m") == [["door of talk"], ["door of both"]]
    assert (ways.asked("m", short=True), asks) == (3.0, [("talk", True)])


def test_a_model_that_takes_no_requests_has_no_doors_and_wakes_nobody():
    ways = PoolWays(pools=[BATCH], doors_of=lambda _: [], ask=lambda *_: 1 / 0)
    assert (ways.models(), ways.doors("m"), ways.asked("m", short=True)) == ([], [], 0.0)
