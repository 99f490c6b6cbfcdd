"""The group committer, over a transaction that only takes notes."""

import os
import threading

import pytest

from infra.sql.writer import Pace, Writer
from jobs.errors import Broken, DatabaseUnavailable

pytestmark = pytest.mark.unit


class Notes:
    """Transactions as lists of what was done in them."""

    def __init__(self):
        self.committed = []
        self.rolled_back = 0
        self.fail_commit = False

    def transact(self, work):
        done = []
        try:
            result = work(done)
        except BaseException:
            self.rolled_back += 1
            raise
        if self.fail_commit:
            raise OSError("disk")
        self.committed.append(done)
        return result


@pytest.fixture
def notes():
    return Notes()


def a_writer(notes, **pace):
    return Writer(notes.transact, Pace(**{"linger_s": 0.0, "commit_linger_s": 0.0, "gap_s": 0.0, **pace}))


def together(writer, works, run=None):
    """Run works from as many threads; results or errors, in order."""
    answers = [None] * len(works)

    def one(number):
        try:
            answers[number] = (run or writer.run)(works[number])
        except (ValueError, OSError, ArithmeticError, DatabaseUnavailable) as error:
            answers[number] = repr(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def note(word):
    def work(done):
        done.append(word)
        return word.upper()

    return work


def one_inside(writer):
    """(a thread that notes "first" in a transaction of the writer, what lets it go on)."""
    inside, leave = threading.Event(), threading.Event()

    def linger(done):
        done.append("first")
        inside.set()
        assert leave.wait(10)

    thread = threading.Thread(target=writer.run, args=(linger,))
    thread.start()
    assert inside.wait(10)
    return thread, leave


def fail(done):
    raise ValueError("lame")


def test_a_result_comes_back_once_it_is_committed(notes):
    writer = a_writer(notes)
    assert writer.run(note("a")) == "A"
    assert notes.committed == [["a"]]
    writer.close()


def test_what_arrives_while_one_lingers_shares_its_transaction(notes):
    """The group is full at three members, so that nothing here depends on time."""
    writer = a_writer(notes, linger_s=3600.0, members=3)
    assert together(writer, [note("a"), note("b"), note("c")]) == ["A", "B", "C"]
    assert [sorted(done) for done in notes.committed] == [["a", "b", "c"]]
    writer.close()


def test_a_failing_member_fails_alone(notes):
    writer = a_writer(notes, linger_s=3600.0, members=3)
    assert together(writer, [note("a"), fail, note("c")]) == ["A", "ValueError('lame')", "C"]
    assert sorted(notes.committed) == [["a"], ["c"]]
    assert notes.rolled_back == 2
    writer.close()


def test_a_backend_that_is_away_is_waited_for_once_not_once_a_member(notes):
    tried = []

    def away(done):
        tried.append(1)
        raise DatabaseUnavailable(where="here", reason="locked")

    writer = a_writer(notes, linger_s=3600.0, members=3)
    assert [answer[:19] for answer in together(writer, [away, away, away])] == ["DatabaseUnavailable"] * 3
    assert len(tried) == 1
    writer.close()


def test_a_commit_that_fails_fails_for_each(notes):
    notes.fail_commit = True
    writer = a_writer(notes, linger_s=3600.0, members=2)
    assert together(writer, [note("a"), note("b")]) == ["OSError('disk')"] * 2
    notes.fail_commit = False
    writer.close()


def test_an_impatient_member_ends_the_wait_of_a_patient_one(notes):
    writer = a_writer(notes, linger_s=3600.0)
    first = threading.Thread(target=lambda: writer.run(note("patient")))
    first.start()
    writer.run(note("now"), linger_s=0.0)
    writer.close()
    first.join()
    assert sorted(word for done in notes.committed for word in done) == ["now", "patient"]


def test_who_is_in_a_hurry_and_alone_writes_by_himself(notes):
    writer = a_writer(notes)
    assert writer.run(lambda _: threading.current_thread()) is threading.current_thread()
    assert writer._threads == []
    with pytest.raises(ValueError, match="lame"):
        writer.run(fail)
    assert writer.run(note("a")) == "A"
    writer.close()


def test_who_comes_while_one_writes_by_himself_goes_next_and_a_close_waits_for_both(notes):
    writer = a_writer(notes)
    first, leave = one_inside(writer)
    others = [threading.Thread(target=writer.run, args=(note(word),)) for word in "ab"]
    for thread in others:
        thread.start()
    while len(writer._waiting) < 2:
        pass
    closing = threading.Thread(target=writer.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    assert notes.committed == []
    leave.set()
    for thread in (first, *others, closing):
        thread.join(10)
    assert [sorted(done) for done in notes.committed] == [["first"], ["a", "b"]]


def test_a_close_waits_for_who_writes_by_himself_though_no_thread_was_started(notes):
    writer = a_writer(notes)
    first, leave = one_inside(writer)
    closing = threading.Thread(target=writer.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    leave.set()
    for thread in (first, closing):
        thread.join(10)
    assert (notes.committed, writer._threads) == ([["first"]], [])


def test_items_for_the_same_work_are_carried_out_in_one_call(notes):
    calls = []

    def double(done, items):
        calls.append(sorted(items))
        done.append("double")
        return [2 * item for item in items]

    writer = a_writer(notes, linger_s=3600.0, members=3)
    answers = together(writer, [[1, 2], [3], []], run=lambda items: writer.run_all(double, items))
    assert answers == [[2, 4], [6], []]
    assert (calls, notes.committed) == ([[1, 2, 3]], [["double"]])
    writer.close()


def test_items_of_the_same_work_are_one_call_whatever_stands_between_them(notes):
    calls = []

    def double(done, items):
        calls.append(sorted(items))
        return [2 * item for item in items]

    writer = a_writer(notes, linger_s=3600.0, members=5)
    runs = [lambda: writer.run_all(double, [1]), lambda: writer.run(note("a")), lambda: writer.run_all(double, [2, 3])]
    runs += [lambda: writer.run(note("b")), lambda: writer.run_all(double, [4])]
    assert together(writer, runs, run=lambda one: one()) == [[2], "A", [4, 6], "B", [8]]
    assert (calls, [sorted(done) for done in notes.committed]) == ([[1, 2, 3, 4]], [["a", "b"]])
    writer.close()


def test_items_that_fail_fail_for_their_caller_alone(notes):
    def invert(done, items):
        done.append("inverted")
        return [1 // item for item in items]

    writer = a_writer(notes, linger_s=3600.0, members=2)
    answers = together(writer, [[1, -1], [1, 0]], run=lambda items: writer.run_all(invert, items))
    assert answers == [[1, -1], "ZeroDivisionError('integer division or modulo by zero')"]
    assert notes.committed == [["inverted"]]
    writer.close()


def test_several_writers_commit_at_the_same_time(notes):
    """Each of the two waits inside its transaction until the other is inside its own."""
    both = threading.Barrier(2, timeout=10)

    def meet(done):
        both.wait()
        return "met"

    writer = a_writer(notes, linger_s=3600.0, writers=2, members=1)
    assert together(writer, [meet, meet]) == ["met", "met"]
    assert len(writer._threads) == 2
    writer.close()
    assert not any(thread.is_alive() for thread in writer._threads)


def test_of_several_writers_company_gathers_only_behind_a_transaction_under_way(notes):
    writer = a_writer(notes, writers=2, linger_s=3600.0)
    first, leave = one_inside(writer)  # a lone arrival waits for nobody
    others = [threading.Thread(target=writer.run, args=(note(word),)) for word in "ab"]
    for thread in others:
        thread.start()
    with writer._changed:  # who comes to those that wait already wakes nobody
        while len(writer._waiting) < 2:
            writer._changed.wait(0.01)
    leave.set()
    for thread in (first, *others):
        thread.join(10)
    assert [sorted(done) for done in notes.committed] == [["first"], ["a", "b"]]
    writer.close()


def test_closing_finishes_what_waits_and_takes_nothing_more(notes):
    writer = a_writer(notes, linger_s=3600.0)
    waiting = threading.Thread(target=lambda: writer.run(note("a")))
    waiting.start()
    while not writer._waiting:
        pass
    writer.close()
    waiting.join()
    assert notes.committed == [["a"]]
    with pytest.raises(Broken, match="closed"):
        writer.run(note("b"))


def test_a_writer_that_never_wrote_starts_no_thread(notes):
    writer = a_writer(notes)
    writer.close()
    assert writer._threads == []


def test_a_writer_is_not_used_after_a_fork(notes, monkeypatch):
    writer = a_writer(notes)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(Broken, match="fork"):
        writer.run(note("a"))


def test_the_gap_follows_the_last_commit(notes, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("infra.sql.writer.time.monotonic", lambda: now[0])
    writer = a_writer(notes, linger_s=0.002, gap_s=0.005)
    writer._last_commit = 100.0
    writer._waiting = [type("Member", (), {"due": 100.002, "urgent": False})]
    assert writer._hold_back_s() == pytest.approx(0.005)
    now[0] = 100.004
    assert writer._hold_back_s() == pytest.approx(0.001)
    now[0] = 100.006
    assert writer._hold_back_s() < 0
    now[0] = 100.001
    writer._waiting += [type("Member", (), {"due": 100.001, "urgent": True})]
    assert writer._hold_back_s() == pytest.approx(0.001)
    writer._waiting = []
