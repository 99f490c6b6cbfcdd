"""The range reader: what it fetches for what is asked of it."""

import io
import os
import random

import pytest

from infra.objects.s3_reader import FIRST_BYTES, HELD_BYTES, LARGEST_BYTES, WHOLE_BYTES, RangeFile, RangeReader

pytestmark = pytest.mark.unit

DATA = os.urandom(1 << 20) * 24


class Store:
    """fetched: every range that was asked for."""

    def __init__(self, data=DATA):
        self.data = data
        self.fetched = []
        self.reader = RangeReader(self._fetch, len(data))
        self.file = RangeFile(self.reader)

    def _fetch(self, start, stop):
        self.fetched.append((start, stop))
        return self.data[start:stop]

    def held(self):
        return sum(len(window.data) for window in self.reader._windows)


@pytest.mark.parametrize("data", [b"", b"x", DATA[:WHOLE_BYTES]])
def test_a_small_object_is_fetched_at_once(data):
    store = Store(data)
    store.file.seek(-len(data) // 2, os.SEEK_END)
    assert store.file.read() == data[len(data) - -(-len(data) // 2) :]
    store.file.seek(0)
    assert store.file.read() == data
    assert store.fetched == ([(0, len(data))] if data else [])


def test_any_sequence_of_seeks_and_reads_gives_the_same_as_a_local_file():
    store, local, chance = Store(), io.BytesIO(DATA), random.Random(7)
    for _ in range(300):
        offset = chance.choice([chance.randrange(len(DATA) + 1000), chance.randrange(1000)])
        size = chance.choice([0, 1, 100, 70_000, 1 << 20, 5 << 20])
        assert store.file.seek(offset) == local.seek(offset)
        assert store.file.read(size) == local.read(size)
        assert store.file.tell() == local.tell()
        assert store.held() <= HELD_BYTES + LARGEST_BYTES
    assert store.file.seek(-7, os.SEEK_END) == local.seek(-7, os.SEEK_END)
    assert store.file.read() == local.read()


def test_reading_on_fetches_more_and_more_and_nothing_twice():
    store = Store()
    while store.file.read(1 << 16):
        pass
    sizes = [stop - start for start, stop in store.fetched]
    assert sizes[:5] == [FIRST_BYTES, 2 * FIRST_BYTES, 4 * FIRST_BYTES, 8 * FIRST_BYTES, LARGEST_BYTES]
    assert max(sizes) == LARGEST_BYTES
    assert [start for start, _ in store.fetched[1:]] == [stop for _, stop in store.fetched[:-1]]


def test_several_places_are_read_on_in_turn_each_from_its_own_window():
    store = Store()
    step = 6 << 20
    for turn in range(64):
        for column in range(4):
            store.file.seek(column * step + turn * (32 << 10))
            assert store.file.read(32 << 10) == DATA[store.file.tell() - (32 << 10) : store.file.tell()]
    assert len(store.fetched) <= 4 * 5
    assert sum(stop - start for start, stop in store.fetched) <= 4 * (4 << 20)


def test_lines_are_read_as_from_a_file():
    text = b"".join(b"%d %s\n" % (number, b"x" * (number % 999)) for number in range(20_000))
    assert list(Store(text).file) == list(io.BytesIO(text))


def test_a_large_read_fetches_just_that_and_keeps_nothing():
    store = Store()
    store.file.seek(3 << 20)
    assert store.file.read(1 << 20) == DATA[3 << 20 : 4 << 20]
    assert store.file.read(1 << 20) == DATA[4 << 20 : 5 << 20]
    assert (store.fetched, store.held()) == ([(3 << 20, 4 << 20), (4 << 20, 5 << 20)], 0)
    assert store.file.read(40 << 20) == DATA[5 << 20 :]
    assert store.file.read(1 << 20) == b""
