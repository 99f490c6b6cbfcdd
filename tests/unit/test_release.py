"""jobs/release.py: how much lies released ahead of the workers, and what it may cost."""

import pytest

from jobs.release import ReleasePolicy, how_many, reserve_pico
from tests.support.values import a_job, a_price, a_task, span

pytestmark = pytest.mark.unit

POLICY = ReleasePolicy(ahead_tasks=2, ahead_rows=1000, batch=512)


def test_big_tasks_are_released_two_ahead():
    assert how_many([4096] * 10, [], POLICY) == 2


def test_small_tasks_are_released_until_their_rows_fill_the_stretch_ahead():
    assert how_many([100] * 50, [], POLICY) == 10


def test_what_is_released_already_counts():
    assert how_many([100] * 50, [100] * 9, POLICY) == 1
    assert how_many([100] * 50, [100] * 10, POLICY) == 0
    assert how_many([100] * 50, [4096], POLICY) == 1


def test_the_stretch_ahead_grows_with_the_workers():
    assert how_many([4096] * 10, [4096], POLICY, workers=3) == 5


def test_no_more_go_into_one_transaction_than_the_batch():
    assert how_many([1] * 5000, [], POLICY) == 512


def test_where_enough_is_released_only_the_first_queued_task_is_read():
    assert POLICY.to_read([600, 500]) == 1
    assert POLICY.to_read([4096]) == POLICY.to_read([600, 300]) == 512


def test_nothing_queued_releases_nothing():
    assert how_many([], [], POLICY) == 0


def test_a_reservation_takes_all_input_at_the_dearer_price_and_all_output_at_its_limit():
    task = a_task(ranges=span(0, 10), est_input_tokens=1000, est_output_tokens=200)
    price = a_price(input_micro=3, cached_micro=5, output_micro=7)
    assert reserve_pico(a_job(price=price), task) == 5 * (4 * 1000 + 64 * 10) + 7 * 200


def test_a_free_model_reserves_nothing():
    assert reserve_pico(a_job(price=a_price(input_micro=0, cached_micro=0, output_micro=0)), a_task()) == 0
