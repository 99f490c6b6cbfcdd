"""What several tiers share. A service is started once, when the first test asks for it."""

import pytest

from tests.support.kafka import kafka_broker
from tests.support.postgres import postgres_server
from tests.support.s3 import KEYS, FaultyS3, s3_server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """A Kafka broker."""
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """An S3 server with an empty bucket."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_proxy(s3):
    opened = FaultyS3(s3)
    yield opened
    opened.close()


@pytest.fixture
def faulty(s3_proxy):
    """The same server behind a proxy, which does what a test's rule says."""
    s3_proxy.reset()
    return s3_proxy


@pytest.fixture
def s3_keys(monkeypatch):
    """Credentials that the server takes, where the AWS tools look first."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


_LIGHT = ("tests/unit/", "tests/property/", "tests/architecture/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `-n 2`: what starts services runs in one process, in order; what starts nothing runs beside it.

    A process that dies (a driver of Ray ends at once when its node does) is a failed test and not the end of the run.
    """
    from xdist.scheduler.loadscope import LoadScopeScheduling  # noqa: PLC0415 - there only where it is asked for

    class Tiers(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return nodeid.partition("::")[0] if nodeid.startswith(_LIGHT) else "services"

    return Tiers(config, log)
