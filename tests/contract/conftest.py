"""One fixture a port; its parameters are the adapters. A new adapter adds a parameter, not a file."""

import pytest

from infra.clocks import ManualClock, SeededIds
from infra.objects.local import LocalObjects
from infra.queue import open_queue
from infra.sql import AT_ONCE, open_store


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["sqlite"])
def open_again(request, tmp_path, clock):
    """Opens the same store as often as it is called."""
    opened = []

    def open_one():
        opened.append(open_store(tmp_path / "home", clock=clock, pace=AT_ONCE))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again):
    return open_again()


@pytest.fixture(params=["sqlite"])
def queue(request, tmp_path, clock):
    opened = open_queue(tmp_path / "home", clock=clock, ids=SeededIds(), pace=AT_ONCE)
    yield opened
    opened.close()


@pytest.fixture(params=["file-uri", "path"])
def folder(request, tmp_path):
    """Where objects may be written, as a URI."""
    place = tmp_path / "objects with a space"
    return place.as_uri() if request.param == "file-uri" else str(place)


@pytest.fixture
def objects(folder):
    return LocalObjects()
