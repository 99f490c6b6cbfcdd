"""infra/heap.py: after a start the garbage collector has little to look at."""

import gc
import weakref

import pytest

from infra.heap import settle_heap

pytestmark = pytest.mark.unit


class Node:
    """It may hold itself."""


def test_what_lives_is_in_no_later_pass_and_what_died_is_gone():
    lives, died = Node(), Node()
    died.itself = died
    gone = weakref.ref(died)
    del died
    try:
        settle_heap()
        assert (gone(), any(one is lives for one in gc.get_objects())) == (None, False)
    finally:
        gc.unfreeze()
