"""workers/about.py: the ids that log events carry, and where they end."""

import pytest
from structlog.contextvars import bound_contextvars, get_contextvars

from tests.support.values import a_job, a_task
from workers.about import about, named_pool, named_thread
from workers.loops import Alarm, Loop

pytestmark = pytest.mark.unit

JOB = {"job": "j", "tenant": "t"}


def test_ids_are_bound_inside_and_gone_after_an_error_too():
    seen = []

    def fail():
        with about(a_job(), a_task()):
            seen.append(get_contextvars())
            raise ZeroDivisionError

    with about(a_job()):
        with pytest.raises(ZeroDivisionError):
            fail()
        seen.append(get_contextvars())
    seen.append(get_contextvars())
    assert seen == [JOB | {"task": "j.0"}, JOB, {}]


def test_a_thread_a_pool_and_a_loop_log_with_the_ids_of_whoever_made_them():
    seen = []
    with bound_contextvars(worker="w"):
        thread = named_thread("t", lambda: seen.append(get_contextvars()))
        pool = named_pool(1, "p")
        loop = Loop("l", lambda: seen.append(get_contextvars()) or loop.stop(), Alarm())
    thread.start()
    thread.join()
    pool.submit(lambda: seen.append(get_contextvars())).result()
    pool.shutdown()
    loop.start()
    loop.stop()
    assert seen == [{"worker": "w"}] * 3
