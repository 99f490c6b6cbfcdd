"""workers/loops.py: how often a loop steps."""

import pytest

from workers import loops
from workers.loops import Alarm, Loop

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("step_s", "rest_s"), [(0.002, 0.018), (0.5, 0.2)], ids=["its share", "as if nobody woke it"])
def test_a_loop_that_is_woken_again_and_again_rests_nine_times_as_long_as_its_step_took(monkeypatch, step_s, rest_s):
    rests, cpu_s = [], iter((10.0, 10.0 + step_s))
    monkeypatch.setattr(loops.time, "thread_time", lambda: next(cpu_s))

    def step():
        loop.wake()

    def rest(timeout_s):
        rests.append(round(timeout_s, 6))
        loop.stop()

    loop = Loop("l", step, Alarm(), every_s=0.2)
    monkeypatch.setattr(loop._stop, "wait", rest)
    loop._run()
    assert rests == [rest_s]


@pytest.mark.parametrize("step_s", [0.0, 0.002, 0.5])
def test_a_loop_that_nobody_wakes_pauses_as_long_as_it_was_told_to(monkeypatch, step_s):
    pauses, cpu_s = [], iter((10.0, 10.0 + step_s))
    monkeypatch.setattr(loops.time, "thread_time", lambda: next(cpu_s))
    loop = Loop("l", lambda: None, Alarm(), every_s=0.2)
    monkeypatch.setattr(loop._stop, "wait", pauses.append)

    def wait(timeout_s):
        pauses.append(timeout_s)
        loop._stop.set()

    monkeypatch.setattr(loop._wake, "wait", wait)
    loop._run()
    assert round(sum(pauses), 6) == 0.2
