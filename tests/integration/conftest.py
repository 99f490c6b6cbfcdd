"""What tests of a Nightmill that is up in its own process share: each has a tenant of its own there."""

from itertools import count

import pytest

_NUMBERS = count(1)


@pytest.fixture
def tenant():
    return f"tenant-{next(_NUMBERS)}"


@pytest.fixture
def client(up, tenant):
    """The stock client, with a key of that tenant. up: the module's own, see `tests.support.upped`."""
    return up.client(up.key(tenant))
