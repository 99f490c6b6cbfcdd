"""What several tiers share. A service is started once, when the first test asks for it."""

import pytest

from tests.support.s3 import KEYS, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """An S3 server with an empty bucket."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_keys(monkeypatch):
    """Credentials that the server takes, where the AWS tools look first."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
