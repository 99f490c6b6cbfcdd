"""Clocks and ids."""

import random
import re

import pytest

from infra.clocks import ManualClock, SeededIds, SystemClock, SystemIds, crockford, time_of

pytestmark = pytest.mark.unit


def test_job_ids_sort_by_time_and_are_26_unmistakable_characters():
    made = [SystemIds().job_id() for _ in range(200)]
    assert made == sorted(set(made))
    assert all(re.fullmatch(r"job-[0-9a-hjkmnp-tv-z]{26}", name) for name in made)


def test_tokens_are_128_random_bits():
    made = {SystemIds().token() for _ in range(200)}
    assert len(made) == 200
    assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in made)


def test_seeded_ids_repeat_themselves():
    one, two = SeededIds(7), SeededIds(7)
    names = [(one.job_id(), one.token()) for _ in range(20)]
    assert names == [(two.job_id(), two.token()) for _ in range(20)]
    assert [job for job, _ in names] == sorted({job for job, _ in names})


def test_crockford_keeps_the_order_of_numbers():
    numbers = sorted({0, 2**128 - 1, *(random.Random(1).getrandbits(128) for _ in range(100))})
    texts = [crockford(number) for number in numbers]
    assert texts == sorted(texts)
    assert (texts[0], texts[-1]) == ("0" * 26, "7" + "z" * 25)


def test_a_manual_clock_moves_when_told():
    clock = ManualClock(100.0)
    clock.sleep(5.0)
    clock.jump(-50.0)
    assert (clock.now(), clock.monotonic()) == (55.0, 5.0)


def test_the_system_clock_goes_forward():
    clock = SystemClock()
    first = clock.monotonic()
    clock.sleep(0.0)
    assert clock.monotonic() >= first
    assert clock.now() > 1_700_000_000


def test_an_id_tells_when_it_was_made():
    before = SystemClock().now()
    made = time_of(SystemIds().new("file-"))
    assert before - 0.001 <= made <= SystemClock().now()
