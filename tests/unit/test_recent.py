"""infra/sql/recent.py: what this process put just now is at hand, within bounds."""

import pytest

from infra.sql import recent
from infra.sql.recent import Recent

pytestmark = pytest.mark.unit


def test_what_was_put_is_there_until_it_is_forgotten():
    kept = Recent()
    kept.put([("a", b"1"), ("b", b"2")])
    kept.forget(["a", "c"])
    assert [kept.get(uri) for uri in ("a", "b", "c")] == [None, b"2", None]


def test_the_first_go_first_and_the_large_are_not_kept(monkeypatch):
    monkeypatch.setattr(recent, "_MOST_BYTES", 8)
    monkeypatch.setattr(recent, "_LARGEST_BYTES", 4)
    kept = Recent()
    kept.put([("large", b"12345"), ("a", b"1234"), ("b", b"12"), ("a", b"123"), ("c", b"1234")])
    assert [kept.get(uri) for uri in ("large", "a", "b", "c")] == [None, b"123", None, b"1234"]
