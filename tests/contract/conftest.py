"""One fixture a port; its parameters are the adapters. A new adapter adds a parameter, not a file."""

import shutil

import pytest

from infra.clocks import SeededIds
from infra.objects.local import LocalObjects
from infra.queue import open_queue
from infra.sql import AT_ONCE, engine, open_store
from tests.support.postgres import ServersClock
from tests.support.s3 import BUCKET, shared_login


@pytest.fixture
def clock():
    return ServersClock()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """An empty database that every test gets a copy of: to migrate one takes longer than most tests."""
    home = tmp_path_factory.mktemp("migrated")
    open_store(home).close()
    return home


@pytest.fixture
def no_flush(monkeypatch):
    """A power cut is not part of these tests, and a flush of the disk is most of their time."""
    pragmas = [pragma.replace("= FULL", "= OFF") for pragma in engine.PRAGMAS]
    monkeypatch.setattr(engine, "PRAGMAS", pragmas)


@pytest.fixture
def sqlite_home(tmp_path, migrated, no_flush):
    """A data directory whose database was migrated."""
    return shutil.copytree(migrated, tmp_path / "home")


@pytest.fixture
def postgres_url(postgres, clock):
    """A migrated database of the server's, which follows the clock."""
    with postgres.database() as database:
        yield database.url_of_clock(clock)


@pytest.fixture(params=["sqlite", "postgres"])
def open_again(request, clock):
    """Opens the same store as often as it is called."""
    opened = []
    where = request.getfixturevalue({"sqlite": "sqlite_home", "postgres": "postgres_url"}[request.param])

    def open_one():
        opened.append(open_store(where, clock=clock, pace=AT_ONCE))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again):
    return open_again()


@pytest.fixture(params=["sqlite", "kafka"])
def queue(request, tmp_path, clock, no_flush):
    if request.param == "sqlite":
        opened = open_queue(tmp_path / "home", clock=clock, ids=SeededIds(), pace=AT_ONCE)
        yield opened
        opened.close()
        return
    broker = request.getfixturevalue("kafka")
    opened = broker.open()
    yield opened
    opened.close()
    broker.clear()


@pytest.fixture(params=["file-uri", "path", "s3"])
def folder(request, tmp_path):
    """Where objects may be written, as a URI."""
    place = tmp_path / "objects with a space"
    if request.param == "s3":
        return f"s3://{BUCKET}/{place.as_posix().lstrip('/')}"
    return place.as_uri() if request.param == "file-uri" else str(place)


@pytest.fixture
def objects(folder, request, tmp_path):
    """The adapter itself, without the router."""
    if not folder.startswith("s3:"):
        return LocalObjects()
    request.getfixturevalue("s3_keys")
    from infra.objects.s3 import S3Objects  # noqa: PLC0415 - boto3 only where it is used
    from infra.objects.s3_client import Connection  # noqa: PLC0415 - as above

    options = request.getfixturevalue("s3").options()
    return S3Objects(Connection(options, open_client=shared_login), tmp_path / "scratch")
