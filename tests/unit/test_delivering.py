"""workers/delivering.py: what is due is begun where there is room, and nobody's endpoint holds up another's."""

from concurrent.futures import Future

import pytest

from infra.clocks import ManualClock
from tests.support.hooks import a_delivery
from workers.delivering import Delivering, DeliveryPolicy

pytestmark = pytest.mark.unit


class Threads:
    """An executor whose work ends when it is told to."""

    def __init__(self):
        self.under_way = []

    def submit(self, work, delivery):
        future = Future()
        self.under_way.append((delivery, future))
        return future

    def end(self, delivery_id, *, error=None, **outcome):
        delivery, future = next(one for one in self.under_way if one[0].id == delivery_id)
        if error is None:
            future.set_result(delivery.evolve(**outcome))
        else:
            future.set_exception(error)


class Outbox:
    """due: what the next take gives, by tenant and id; asked: how it was asked."""

    def __init__(self, *due):
        self.due, self.asked, self.forgot = list(due), [], []

    def take_deliveries(self, **how):
        self.asked.append((how["limit"], how["skip"]))
        taken = [d for d in self.due if d.tenant not in how["skip"]][: how["limit"]]
        self.due = [d for d in self.due if d not in taken]
        return taken

    def forget_deliveries(self, older_than_s):
        self.forgot.append(older_than_s)
        return 0


class Deliverer:
    def __init__(self, store):
        self.store = store

    def deliver(self, delivery):
        raise AssertionError


def delivering(*due, **policy):
    clock, threads = ManualClock(), Threads()
    made = Delivering(deliverer=Deliverer(Outbox(*due)), threads=threads, clock=clock, policy=DeliveryPolicy(**policy))
    return made, made.deliverer.store, threads, clock


def several(tenant, count):
    return [a_delivery(id=f"{tenant}-{n}", tenant=tenant) for n in range(count)]


def test_so_many_are_under_way_and_the_rest_when_there_is_room():
    made, store, threads, _ = delivering(*several("a", 3), at_once=2)
    assert [made.step(), made.step()] == [2, 0]
    threads.end("a-0", outcome="delivered")
    assert (made.step(), made.counts) == (1, {"delivered": 1})
    assert store.asked == [(2, []), (1, [])]


def test_a_tenant_with_enough_under_way_is_passed_over():
    made, store, threads, _ = delivering(*several("a", 2), at_once=8, each=2)
    made.step()
    store.due = [*several("b", 1), a_delivery(id="a-9", tenant="a")]
    assert (made.step(), store.asked[-1], [d.id for d, _ in threads.under_way]) == (
        1, (6, ["a"]), ["a-0", "a-1", "b-0"],
    )  # fmt: skip
    threads.end("a-1", outcome="failed")
    assert (made.step(), made.counts) == (1, {"failed": 1})


def test_one_that_will_be_tried_again_and_one_that_broke_are_told_apart():
    made, _, threads, _ = delivering(*several("a", 2))
    made.step()
    threads.end("a-0", reason="x")
    threads.end("a-1", error=RuntimeError("bug"))
    assert (made.step(), made.counts) == (0, {"again": 1})


def test_old_ones_are_forgotten_once_an_hour():
    made, store, _, clock = delivering(keep_s=60.0)
    for wait_s in (0, 3599, 1, 3600):
        clock.advance(wait_s)
        made.step()
    assert store.forgot == [60.0] * 3
