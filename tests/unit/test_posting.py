"""workers/posting.Poster: what ended is written in groups, and told afterwards."""

import threading

import pytest

from infra.clocks import ManualClock
from jobs.errors import Broken, DatabaseUnavailable
from jobs.requests import End, Ended, posting_of
from jobs.retry import Backoff
from tests.support.live import Ear, a_live_request
from workers.posting import Parcel, Poster

pytestmark = pytest.mark.unit

AWAY = DatabaseUnavailable(where="memory", reason="the test took it away")


class Book:
    """Where postings go. away: so many calls fail. sour: ids that are refused. shut: calls wait until it is opened."""

    def __init__(self, away=0, sour=()):
        self.groups, self.away, self.sour = [], away, set(sour)
        self.opened, self.entered = threading.Event(), threading.Event()
        self.opened.set()

    def post(self, postings):
        self.entered.set()
        self.opened.wait()
        ids = [posting.id for posting in postings]
        if self.away:
            self.away -= 1
            raise AWAY
        if self.sour & set(ids):
            raise Broken(reason="no such tenant")
        self.groups.append(ids)
        return []


def a_parcel(name):
    request, ear = a_live_request(id=name), Ear()
    ended = Ended(end=End.DONE)
    return Parcel(posting_of(request, ended.usage, pool="p", worker="w", outcome="ok"), ended, ear)


def posted(book, *names, attempts=3):
    """The ends of all, once all are told."""
    poster = Poster(post=book.post, clock=ManualClock(), again=Backoff(attempts=attempts))
    parcels = [a_parcel(name) for name in names]
    for parcel in parcels:
        poster.put(parcel)
    book.opened.set()
    poster.close()
    assert poster.idle
    return [parcel.hear.ended for parcel in parcels]


def test_what_ends_while_a_group_is_written_is_the_next_group():
    book = Book()
    book.opened.clear()
    poster = Poster(post=book.post, clock=ManualClock())
    parcels = [a_parcel(name) for name in "abcd"]
    poster.put(parcels[0])
    book.entered.wait()
    for parcel in parcels[1:]:
        poster.put(parcel)
    assert (parcels[0].hear.end, poster.idle) == (None, False), "nothing is told before it is written"
    book.opened.set()
    poster.close()
    assert book.groups == [["a"], ["b", "c", "d"]]
    assert [parcel.hear.end for parcel in parcels] == [End.DONE] * 4


def test_a_database_that_comes_back_in_time_is_waited_for():
    book = Book(away=2)
    assert [ended.end for ended in posted(book, "a")] == [End.DONE]


def test_what_is_not_written_in_time_is_told_as_lost_with_the_reason():
    (ended,) = posted(Book(away=99), "a")
    assert ended == Ended(end=End.LOST, reason=f"its charge was not written: {AWAY.sentence}")


def test_one_that_cannot_be_written_is_lost_alone():
    book = Book(sour="b")
    book.opened.clear()
    ends = posted(book, "a", "b", "c")
    assert [ended.end for ended in ends] == [End.DONE, End.LOST, End.DONE]


def test_a_fault_of_ours_is_told_to_those_who_wait_and_the_next_are_written():
    book = Book()

    def post(postings):
        if postings[0].id == "a":
            raise ZeroDivisionError
        return book.post(postings)

    poster = Poster(post=post, clock=ManualClock())
    told, heard = threading.Event(), []
    first, second = a_parcel("a"), a_parcel("b")
    poster.put(Parcel(first.posting, first.ended, lambda said: (heard.append(said), told.set())))
    assert told.wait(30)
    poster.put(second)
    poster.close()
    assert ([said.end for said in heard], second.hear.end) == ([End.LOST], End.DONE)
