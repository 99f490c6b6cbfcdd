"""One API for all tests that do not need one of their own."""

from collections.abc import Iterator

import pytest

from tests.support.api import Town, town


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("api"), private_hosts="127.0.0.1") as opened:
        yield opened
