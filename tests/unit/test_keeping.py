"""workers/keeping.py: one batch that we fail at holds up no other, and is not tried for ever in silence."""

from concurrent.futures import Executor, Future

import pytest

from infra.clocks import ManualClock
from jobs.batching import Look
from jobs.errors import Broken, DatabaseUnavailable, StorageFull, Unavailable
from tests.support.bench import Inline, Later
from tests.support.filing import a_batch
from workers.keeping import Keeping

pytestmark = pytest.mark.unit


class Desk:
    """A keeper of two batches; `faults` are what the next looks at `batch_bad` raise. has_job: it is paid for."""

    def __init__(self, *faults, has_job=False):
        self.faults, self.has_job, self.seen, self.given_up = [*faults], has_job, [], False
        self.clock = ManualClock()
        self.keeping = Keeping(keeper=self, threads=Inline(), quick=Inline(), clock=self.clock)

    def look(self, after=None):
        names = [name for name in ("batch_bad", "batch_good") if not (name == "batch_bad" and self.given_up)]
        return Look([a_batch(name) for name in names], len(names), names[-1])

    def attend(self, batch):
        self.seen.append((batch.id, round(self.clock.monotonic())))
        if batch.id == "batch_bad" and self.faults:
            raise self.faults.pop(0)

    def attend_all(self, batches):
        return [self.attend(batch) for batch in batches]

    def give_up(self, batch):
        self.given_up = batch.id == "batch_bad" and not self.has_job
        return self.given_up

    def run(self, seconds):
        for _ in range(seconds):
            self.keeping.step()
            self.clock.advance(1.0)
        return [at for name, at in self.seen if name == "batch_bad"]


@pytest.mark.parametrize("fault", [ZeroDivisionError(), Broken(reason="x")], ids=repr)
def test_a_batch_that_we_fail_at_rests_ever_longer_and_is_given_up_and_the_others_go_on(fault):
    desk = Desk(*[fault] * 99)
    assert (desk.run(200), desk.given_up, len(desk.seen)) == ([0, 6, 17, 38, 79], True, 200 + 5)


def test_a_batch_that_has_a_job_is_not_given_up_but_tried_every_five_minutes():
    desk = Desk(*[ZeroDivisionError()] * 99, has_job=True)
    assert (desk.run(1100)[4:], desk.given_up) == ([79, 160, 321, 622, 923], False)


@pytest.mark.parametrize("fault", [DatabaseUnavailable(where="it", reason="gone"), StorageFull(where="it")])
def test_a_backend_that_is_away_is_waited_for_however_long(fault):
    desk = Desk(*[fault] * 20)
    assert (desk.run(122)[:4], len(desk.faults), desk.given_up) == ([0, 6, 12, 18], 0, False)


@pytest.mark.parametrize(
    ("fault", "lists", "good"),
    [
        pytest.param(Unavailable(reason="its store is away"), 1, 1, id="a store of its own"),
        pytest.param(DatabaseUnavailable(where="it", reason="gone"), 2, 0, id="everybody's"),
    ],
)
def test_what_failed_in_a_list_is_tried_alone_where_not_all_wait_for_the_same(fault, lists, good):
    desk, threads, asked = Desk(*[fault] * 2), Later(), []

    def attend_all(batches):
        asked.append([batch.id for batch in batches])
        return [desk.attend(batch) for batch in batches]

    desk.attend_all = attend_all
    desk.keeping = Keeping(keeper=desk, threads=Inline(), quick=threads, clock=desk.clock)
    for _ in range(2):
        desk.keeping.step()
        threads.run()
        desk.keeping.step()
        desk.clock.advance(6.0)
    done = [name for name, _ in desk.seen].count("batch_good")
    assert (asked, done) == ([["batch_bad", "batch_good"]] * lists, good)


def test_a_batch_that_came_on_again_has_all_its_tries():
    desk = Desk(*[ZeroDivisionError()] * 4)
    desk.run(100)
    desk.faults = [ZeroDivisionError()] * 4
    desk.run(100)
    assert (desk.faults, desk.given_up) == ([], False)


class Held(Executor):
    """Carries nothing out; `given` are the batches that it has."""

    def __init__(self):
        self.given = {}

    def submit(self, fn, batch):
        self.given[batch.id] = future = Future()
        return future

    def end(self, name):
        self.given.pop(name).set_result(None)


def test_all_batches_are_looked_at_the_more_seldom_the_more_there_are_and_the_new_ones_each_time():
    desk, asked = Desk(), []

    def look(after=None):
        asked.append(after)
        return Look([], 10_000 if after is None else 1, f"batch_{len(asked)}")

    desk.look = look
    for _ in range(4):
        desk.keeping.step()
        desk.clock.advance(0.5)
    assert asked == [None, "batch_1", "batch_2", None]


def test_of_large_inputs_two_are_checked_at_a_time_one_a_tenant_and_small_ones_pass_them_by():
    large = {"enqueued_tokens": 10_000_000}
    open_ones = [
        a_batch("a1", tenant="a", **large),
        a_batch("a2", tenant="a", **large),
        a_batch("a3", tenant="a", job="job-1", **large),
        a_batch("b1", tenant="b", **large),
        a_batch("c1", tenant="c", **large),
        a_batch("c2", tenant="c", enqueued_tokens=9),
    ]
    desk, threads = Desk(), Held()
    desk.look = lambda after=None: Look(open_ones, len(open_ones), None)
    keeping = Keeping(keeper=desk, threads=threads, quick=Inline(), clock=desk.clock)
    keeping.step()
    first = [*threads.given]
    threads.end("a1")
    open_ones.pop(0)
    keeping.step()
    small = {name for name, _ in desk.seen}
    assert (first, [*threads.given], small) == (["a1", "a3", "b1"], ["a3", "b1", "a2"], {"c2"})
